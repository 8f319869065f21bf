# shellcheck shell=bash disable=SC2154
# The virtual machines of the testbed: built once, cached, and restored from a saved state in seconds.
# Sourced by script/testbed, which sets $repository, $python, $folder, $switch and $subnet; never run by itself.
#
# The cache (vm-KEY, where KEY is a digest of everything that goes into it) has the disk, the kernel and its initial RAM
# disk, and, in a folder for each kind of acceleration, for each machine an overlay disk and the saved state of a machine
# whose engine answers. A machine is restored from there with an overlay of its own. Its identity is set afterwards.

vm_base=weighbridge/base
vm_unused_days=14
# For software emulation; a fast machine needs a tenth of these.
vm_login_s=30
vm_logins=5
vm_sources=$repository/script/vm
vm_packages=(qemu-system-x86 qemu-utils busybox-static cpio e2fsprogs openssh-client)
vm_names=(hypervisor control)

# shellcheck source=script/vm/build.sh
. "$vm_sources/build.sh"

vm_cache() { printf '%s/weighbridge/vm' "${XDG_CACHE_HOME:-$HOME/.cache}"; }
vm_address() { case $1 in hypervisor) echo "$subnet.101" ;; control) echo "$subnet.102" ;; esac; }
vm_talk() { "$python" "$vm_sources/talk.py" "$@"; }
built_vms() {
    local name
    for name in "${vm_names[@]}"; do if [ -d "$folder/vm-$name" ]; then echo "$name"; fi; done
}
vm_alive() { [ -e "/proc/$(cat "$folder/vm-$1/pid" 2>/dev/null || echo none)/ns" ] && is_vm "$1"; }
is_vm() {
    { tr '\0' '\n' <"/proc/$(cat "$folder/vm-$1/pid")/environ"; } 2>/dev/null | grep -q -x "WEIGHBRIDGE_VM=$folder/vm-$1"
}

# Checks everything that is needed to build or restore; exits with what is missing.
vm_require() {
    [ "$(uname -m)" = x86_64 ] || die "the virtual machines need x86_64; this is $(uname -m)"
    local tool absent=
    for tool in qemu-system-x86_64 qemu-img busybox cpio mkfs.ext4 ssh-keygen; do
        command -v "$tool" >/dev/null || absent="$absent $tool"
    done
    if [ -n "$absent" ]; then
        confirm "the virtual machines need$absent; install ${vm_packages[*]}?" || die "cannot start virtual machines without them"
        apt_install "${vm_packages[@]}" || die "cannot install what the virtual machines need; the reason is above"
    fi
    # In a container the device may be missing where the kernel has it.
    [ -c /dev/net/tun ] || die "/dev/net/tun is missing, through which a virtual machine reaches the switch: modprobe tun"
    [ ${#folder} -le 80 ] || usage_error "WEIGHBRIDGE_TESTBED=$folder is too long for sockets of virtual machines (80 characters)"
    require_python
    docker image inspect "$vm_base" >/dev/null 2>&1 ||
        die "the virtual machines are built from the image $vm_base, which is missing:" \
            "script/docker-engine start && bench-master build-images base"
}

# Sets vm_folder, vm_kind and vm_states: where the saved states for this machine are; builds them if they are missing.
vm_prepare() {
    local cache key
    cache=$(vm_cache)
    mkdir -p "$cache"
    key=$(vm_key)
    vm_folder=$cache/vm-$key
    exec 9>"$cache/lock"
    if ! flock -n 9; then
        say "another testbed is building virtual machines; waiting for it"
        flock -w 900 9 || die "another testbed has held $cache/lock for 15 minutes; find out what hangs"
    fi
    # Leftovers of a build that was killed.
    rm -rf "$cache"/making-*
    if [ ! -f "$vm_folder/disk" ]; then
        say "building the virtual machines: some minutes, once; they are kept in $vm_folder"
        (vm_make_disk "$cache") || die "cannot build the disk of the virtual machines; the reason is above"
    fi
    vm_kind=$(vm_find_kind)
    vm_states=$vm_folder/$vm_kind
    # Under KVM a guest sees the processor as it is, and goes on with no other; a cache may be taken to another machine.
    [ "$vm_kind" = tcg ] || vm_states=$vm_states-$(grep -m 2 -E '^(model name|flags)' /proc/cpuinfo | sha256sum | cut -c1-8)
    if [ ! -d "$vm_states" ]; then
        [ "$vm_kind" = kvm ] || say "no usable KVM here: QEMU emulates the processor, which is slow"
        (vm_make_states) || die "cannot start a virtual machine; the reason is above"
    fi
    touch "$vm_folder"
    find "$cache" -mindepth 1 -maxdepth 1 -name 'vm-*' -mtime "+$vm_unused_days" -exec rm -rf {} +
    exec 9>&-
}

# Stops one of our processes and waits for it.
vm_end_process() {
    local pid tries=0
    pid=$(cat "$1") || return 0
    kill -KILL "$pid" 2>/dev/null || return 0
    while [ -e "/proc/$pid" ] && [ $tries -lt 100 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

# Starts to restore a machine; vm_identify gives it its identity.
vm_start() {
    local name=$1 home=$folder/vm-$1 leg=v-$1
    if vm_alive "$name"; then return; fi
    mkdir -p "$home"
    rm -f "$home"/{disk,qmp,tell,console}
    [ -f "$home/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$home/host_key"
    vm_host_line "$name" >"$home/known_hosts"
    qemu-img create -q -f qcow2 -b "$vm_states/$name.qcow2" -F qcow2 "$home/disk" || die "cannot create the disk of $name"
    if ! ip -n "$switch" link show "$leg" >/dev/null 2>&1; then
        nsenter --net="/run/netns/$switch" ip tuntap add dev "$leg" mode tap || die "cannot create the network of $name"
        ip -n "$switch" link set "$leg" master br0 up
    fi
    (
        cd "$home" || exit
        export WEIGHBRIDGE_VM=$home
        # Started by a shell in the switch's namespace: QEMU makes no packets of its own.
        export -f vm_qemu
        export vm_folder vm_memory_mib vm_processors
        exec setsid nsenter --net="/run/netns/$switch" bash -c 'vm_qemu "$@"' vm "$vm_kind" "$home/disk" \
            "tap,id=net,ifname=$leg,script=no,downscript=no,vnet_hdr=off" -incoming "exec:cat '$vm_states/$name.state'"
    ) >"$home/log" 2>&1 </dev/null &
    echo $! >"$home/pid"
    disown
}

# Gives a restored machine the current time and its own name, id, boot id, address, host key and randomness.
vm_identify() {
    local name=$1 home=$folder/vm-$1 hash machine
    if [ -f "$home/identified" ] && [ "$(cat "$home/identified")" = "$(cat "$home/pid")" ]; then return; fi
    machine=$(tr -d - </proc/sys/kernel/random/uuid)
    hash=$(printf '%s %s' "$folder" "$name" | sha256sum)
    vm_talk "$home/qmp" resume >>"$home/log" 2>&1 || return
    vm_talk "$home/tell" tell >>"$home/log" 2>&1 <<SCRIPT || return
set -e
date --set "@\$now" >/dev/null
echo '$(head -c 64 /dev/urandom | base64 -w0)' >/dev/urandom
hostname $name
echo $name >/etc/hostname
printf '127.0.0.1 localhost\n$(vm_address "$name") $name\n' >/etc/hosts
echo $machine >/etc/machine-id
echo $(cat /proc/sys/kernel/random/uuid) >/run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
ip link set dev eth0 address 52:54:00:${hash:0:2}:${hash:2:2}:${hash:4:2}
ip addr add $(vm_address "$name")/24 dev eth0
ip link set dev eth0 up
ip route add default via $subnet.1
mkdir -p -m 700 /root/.ssh
echo '$(cat "$folder/id_testbed.pub")' >/root/.ssh/authorized_keys
echo '$(base64 -w0 "$home/host_key")' | base64 -d >/etc/ssh/host_key
chmod 600 /etc/ssh/host_key
/usr/sbin/sshd
SCRIPT
    cp "$home/pid" "$home/identified"
}

# Restores both machines in parallel and waits until they accept a login.
vms_up() {
    local name waiting=()
    for name in "${vm_names[@]}"; do vm_start "$name"; done
    for name in "${vm_names[@]}"; do
        (vm_identify "$name" && vm_await "$name") &
        waiting+=($!)
    done
    for name in "${vm_names[@]}"; do
        if ! wait "${waiting[0]}"; then
            tail -n 8 "$folder/vm-$name/log" "$folder/vm-$name/console" >&2 || true
            die "the virtual machine $name accepts no login; the end of its log is above"
        fi
        waiting=("${waiting[@]:1}")
    done
}

# Waits for a complete login and an answer of the engine: the first time of anything is slow on an emulated processor.
vm_await() {
    local tries=0
    until vm_lets_in "$1"; do
        [ $tries -lt $vm_logins ] && vm_alive "$1" || return
        sleep 0.2
        tries=$((tries + 1))
    done
}

vm_lets_in() {
    ssh -q -i "$folder/id_testbed" -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout="$vm_login_s" \
        -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile="$folder/vm-$1/known_hosts" "root@$(vm_address "$1")" \
        docker info </dev/null >/dev/null 2>&1
}
# The line of known_hosts for a machine.
vm_host_line() { echo "$(vm_address "$1") $(cut -d' ' -f1,2 "$folder/vm-$1/host_key.pub")"; }

vm_down() {
    if vm_alive "$1"; then vm_end_process "$folder/vm-$1/pid"; fi
}
