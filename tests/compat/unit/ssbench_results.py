"""What a stat file of ssbench's holds: its scenario, a job that was done, and one that failed."""

SECRETS = ("s3cr3t-key", "AUTH_tk0123456789abcdef", "s3cr3t-pass")


SCENARIO = {
    "_scenario_data": {"name": "n", "sizes": [{"name": "tiny", "size_min": 1, "size_max": 2}]},
    "name": "n",
    "version": "0.3.9",
    "user_count": 2,
}


DONE = {
    "type": "get_object",
    "size_str": "tiny",
    "worker_id": 0,
    "completed_at": 1000.5,
    "first_byte_latency": 0.25,
    "last_byte_latency": 0.5,
    "trans_id": "tx1",
    "retries": 1,
}


FAILED = {
    "type": "upload_object",
    "size_str": "tiny",
    "size": 7,
    "worker_id": "a",
    "completed_at": 1001,
    "retries": 10,
    "auth_kwargs": {"key": SECRETS[0], "token": SECRETS[1], "os_options": {"password": SECRETS[2]}},
    "exception": "ClientException('Object PUT failed',)",
    "traceback": f"Traceback:\n  {SECRETS[0]}\nClientException: PUT failed: http://u:{SECRETS[2]}@h/v1 503 Service\n",
}
