"""When things happened: time stamps with their bounds, from processes and sockets."""
