# shellcheck shell=bash disable=SC2154
# The virtual machines of the testbed: made once, kept in the cache, and restored from a saved state in seconds.
# Sourced by script/testbed, which brings $repository, $python, $folder, $switch and $subnet along; never run.
#
# In the cache (vm-KEY, where KEY stands for all that went into it) are the disk, the kernel and its initial RAM disk,
# and for each kind of acceleration a disk on top of it and the state of a machine whose engine answers. All machines
# are restored from that one state, each with a disk of its own on top. What makes them differ comes afterwards.

vm_memory_mib=768
vm_processors=2
vm_disk=4G
vm_base=weighbridge/base
vm_unused_days=14
# Under software emulation; figures of a fast machine are a tenth of these.
vm_boot_s=120
vm_restore_s=40
vm_sources=$repository/script/vm
vm_names=(hypervisor control)

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

# Everything that is needed to build or restore, or an end that says what is not there.
vm_require() {
    [ "$(uname -m)" = x86_64 ] || die "the virtual machines are made for x86_64; this is $(uname -m)"
    if ! command -v qemu-system-x86_64 qemu-img cpio mkfs.ext4 >/dev/null || [ ! -x /bin/busybox ]; then
        confirm "the virtual machines need QEMU; install qemu-system-x86, qemu-utils, busybox-static, cpio and e2fsprogs?" ||
            die "there are no virtual machines without QEMU"
        apt_install qemu-system-x86 qemu-utils busybox-static cpio e2fsprogs ||
            die "QEMU cannot be installed; the reason is above"
    fi
    # In a container the device may be missing where the kernel has it.
    [ -c /dev/net/tun ] || die "/dev/net/tun is missing, through which a virtual machine reaches the switch: modprobe tun"
    [ ${#folder} -le 80 ] || usage_error "WEIGHBRIDGE_TESTBED=$folder is too long for sockets of virtual machines (80 characters)"
    require_python
    docker image inspect "$vm_base" >/dev/null 2>&1 ||
        die "the virtual machines are made of the image $vm_base, which is not there:" \
            "script/docker-engine start && bench-master build-images base"
}

# Prints what names everything that goes into a machine.
vm_key() {
    {
        cat "$vm_sources"/* "$repository/script/vm.sh"
        docker image inspect --format '{{.Id}}' "$vm_base"
        qemu-system-x86_64 --version
    } | sha256sum | cut -c1-16
}

# Begins QEMU: vm_qemu KIND DISK NETDEV [MORE ...] in the folder where its sockets are to be. Replaces this process.
vm_qemu() {
    local kind=$1 disk=$2 network=$3 accelerator
    shift 3
    case $kind in
        kvm) accelerator=(-accel kvm -cpu host) ;;
        # Not a plainer processor: numpy wants instructions that those lack.
        tcg) accelerator=(-accel 'tcg,thread=multi,tb-size=256' -cpu max) ;;
    esac
    exec qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -machine q35 "${accelerator[@]}" \
        -m "$vm_memory_mib" -smp "$vm_processors" -kernel "$vm_folder/vmlinuz" -initrd "$vm_folder/initrd" \
        -append 'console=ttyS0 quiet mitigations=off panic=-1' \
        -drive "file=$disk,if=none,id=disk,format=qcow2,cache=unsafe" -device virtio-blk-pci,drive=disk \
        -netdev "$network" -device virtio-net-pci,netdev=net,romfile= -device virtio-rng-pci \
        -serial file:console -serial unix:tell,server=on,wait=off -qmp unix:qmp,server=on,wait=off "$@"
}

# Sets vm_folder and vm_kind: where a saved state for this machine is, made now if it is not there yet.
vm_prepare() {
    local cache key
    cache=$(vm_cache)
    mkdir -p "$cache"
    key=$(vm_key)
    vm_folder=$cache/vm-$key
    exec 9>"$cache/lock"
    if ! flock -n 9; then
        say "another testbed is building virtual machines; waiting for it"
        flock -w 900 9 || die "another testbed has held $cache/lock for 15 minutes; see what hangs"
    fi
    if [ ! -f "$vm_folder/disk" ]; then
        say "building the virtual machines: about two minutes, once; they are kept in $vm_folder"
        (vm_make_disk "$cache") || die "the disk of the virtual machines cannot be made; the reason is above"
    fi
    vm_kind=$(vm_find_kind)
    if [ ! -f "$vm_folder/$vm_kind.state" ]; then
        [ "$vm_kind" = kvm ] || say "no usable KVM here: QEMU emulates the processor, which takes its time"
        (vm_make_state) || die "a virtual machine does not start; the reason is above"
    fi
    touch "$vm_folder"
    find "$cache" -mindepth 1 -maxdepth 1 -name 'vm-*' -mtime "+$vm_unused_days" -exec rm -rf {} +
    exec 9>&-
}

# KVM may be there and not start a guest, inside of another virtual machine: only a boot tells. Asked once a boot.
vm_find_kind() {
    local answer
    answer=$vm_folder/kvm-$(cat /proc/sys/kernel/random/boot_id)
    if [ ! -f "$answer" ]; then
        rm -f "$vm_folder"/kvm-????????-*
        echo no >"$answer.part"
        if [ -w /dev/kvm ] && timeout 10 qemu-system-x86_64 -nodefaults -display none -no-reboot -machine q35 -accel kvm \
            -cpu host -m 256 -kernel "$vm_folder/vmlinuz" -initrd "$vm_folder/initrd" -serial stdio \
            -append 'console=ttyS0 quiet panic=-1 weighbridge.probe' </dev/null 2>/dev/null | grep -q 'this machine runs'; then
            echo yes >"$answer.part"
        fi
        mv "$answer.part" "$answer"
    fi
    if [ "$(cat "$answer")" = yes ]; then echo kvm; else echo tcg; fi
}

# Runs a step of the build: a message, and its output only when it fails.
vm_step() {
    local message=$1 log=$work/log began=$SECONDS
    shift
    say "  $message"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 15 "$log" "$work/console" >&2 2>/dev/null || true
        say "  failed after $((SECONDS - began)) s: $message"
        return 1
    fi
}

# Every step is followed by `|| exit`: where it is called from, `set -e` is off.
vm_make_disk() {
    work=$(mktemp -d "$1/making-XXXXXX") || exit
    image=weighbridge-testbed/vm:$(basename "$work" | tr '[:upper:]' '[:lower:]')
    trap 'docker rm -f "$(basename "$work")" >/dev/null 2>&1; docker rmi "$image" >/dev/null 2>&1; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    vm_step "packages and kernel" docker build --network host --tag "$image" "$vm_sources" || exit
    mkdir "$work/root" || exit
    vm_step "root file system" vm_unpack || exit
    vm_step "what starts it" vm_make_initrd || exit
    vm_step "image $vm_base" docker save --output "$work/root/image.tar" "$vm_base" || exit
    vm_step "disk" mkfs.ext4 -q -O ^has_journal -d "$work/root" "$work/disk" "$vm_disk" || exit
    rm -rf "$work/root" "$work/ram" "$vm_folder"
    mv "$work" "$vm_folder"
}

vm_unpack() {
    docker create --name "$(basename "$work")" "$image" || return
    docker export "$(basename "$work")" | tar --extract --numeric-owner -C "$work/root" || return
    # What Docker leaves where it mounts its own: the name and the resolver of the machine come later.
    rm -f "$work/root/.dockerenv" "$work/root/etc/resolv.conf" "$work/root/etc/hostname"
    printf '%s\n' 'HostKey /etc/ssh/host_key' 'PermitRootLogin prohibit-password' 'PasswordAuthentication no' \
        'KbdInteractiveAuthentication no' 'UsePAM no' 'UseDNS no' 'MaxStartups 100' 'Subsystem sftp internal-sftp' \
        >"$work/root/etc/ssh/sshd_config"
    install -m 755 "$vm_sources/init" "$work/root/sbin/weighbridge-init"
}

vm_make_initrd() {
    local kernel module path
    kernel=$(ls "$work/root/lib/modules") || return
    mkdir -p "$work"/ram/{bin,dev,disk,mod,proc} || return
    mv "$work/root/boot/vmlinuz" "$work/vmlinuz" || return
    install -m 755 "$vm_sources/initrd-init" "$work/ram/init"
    cp /bin/busybox "$work/ram/bin/busybox" || return
    for module in virtio_pci virtio_blk ext4; do
        chroot "$work/root" modprobe --show-depends -S "$kernel" "$module" || return
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >"$work/ram/paths"
    while read -r path; do
        cp "$work/root$path" "$work/ram/mod/" || return
        basename "$path" >>"$work/ram/modules"
    done <"$work/ram/paths"
    (cd "$work/ram" && find . | cpio --quiet -o -H newc | gzip -1 >"$work/initrd")
}

# Starts a machine on the disk and writes its state as soon as its engine has the image and has run a container.
vm_make_state() {
    local disk=$vm_folder/$vm_kind.qcow2
    work=$(mktemp -d /tmp/wb-vm-XXXXXX) || exit
    rm -f "$disk" "$disk.part" "$vm_folder/$vm_kind.state.part"
    trap 'vm_end_process "$work/pid" 2>/dev/null; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    (cd "$vm_folder" && qemu-img create -q -f qcow2 -b disk -F raw "$disk.part") || exit
    (cd "$work" && vm_qemu "$vm_kind" "$disk.part" hubport,id=net,hubid=0 9>&- >"$work/log.qemu" 2>&1 </dev/null) &
    echo $! >"$work/pid"
    vm_step "start" vm_wait_listening "$work" || exit
    vm_step "start of its engine" vm_tell_script "$work" 'until docker version; do sleep 0.5; done' || exit
    vm_step "load $vm_base into its engine" vm_tell_script "$work" 'docker load --input /image.tar && rm /image.tar' || exit
    vm_step "first container" vm_tell_script "$work" "docker run --rm $vm_base true && sync" || exit
    vm_step "save its state" vm_talk "$work/qmp" save "$vm_folder/$vm_kind.state.part" || exit
    vm_talk "$work/qmp" quit || exit
    wait
    mv "$disk.part" "$disk"
    mv "$vm_folder/$vm_kind.state.part" "$vm_folder/$vm_kind.state"
}

vm_wait_listening() {
    local end=$((SECONDS + vm_boot_s))
    until grep -q 'weighbridge: listening' "$1/console"; do
        [ $SECONDS -lt $end ] && kill -0 "$(cat "$1/pid")" || return
        sleep 0.1
    done
}

vm_tell_script() { vm_talk "$1/tell" tell <<<"$2"; }

# Ends a process of ours and waits for it.
vm_end_process() {
    local pid tries=0
    pid=$(cat "$1") || return 0
    kill -KILL "$pid" 2>/dev/null || return 0
    while [ -e "/proc/$pid" ] && [ $tries -lt 100 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

# Begins to restore a machine; vm_identify makes it somebody.
vm_start() {
    local name=$1 home=$folder/vm-$1 leg=v-$1
    if vm_alive "$name"; then return; fi
    mkdir -p "$home"
    rm -f "$home"/{disk,qmp,tell,console}
    [ -f "$home/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$home/host_key"
    qemu-img create -q -f qcow2 -b "$vm_folder/$vm_kind.qcow2" -F qcow2 "$home/disk" || die "$name has no disk"
    if ! ip -n "$switch" link show "$leg" >/dev/null 2>&1; then
        nsenter --net="/run/netns/$switch" ip tuntap add dev "$leg" mode tap || die "$name has no network"
        ip -n "$switch" link set "$leg" master br0 up
    fi
    (
        cd "$home" || exit
        export WEIGHBRIDGE_VM=$home
        # Started by a shell in the switch's namespace: QEMU makes no packets of its own.
        export -f vm_qemu
        export vm_folder vm_memory_mib vm_processors
        exec setsid nsenter --net="/run/netns/$switch" bash -c 'vm_qemu "$@"' vm "$vm_kind" "$home/disk" \
            "tap,id=net,ifname=$leg,script=no,downscript=no,vnet_hdr=off" -incoming "exec:cat '$vm_folder/$vm_kind.state'"
    ) >"$home/log" 2>&1 </dev/null &
    echo $! >"$home/pid"
    disown
}

# Gives a restored machine the right time and what no other has: name, id, boot id, address, host key, randomness.
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

# Builds what is missing, restores both machines at the same time and waits until they let one in.
vms_up() {
    local name tries
    for name in "${vm_names[@]}"; do vm_start "$name"; done
    for name in "${vm_names[@]}"; do
        tries=0
        if vm_identify "$name"; then
            until ssh_answers "$(vm_address "$name")" || [ $tries -ge $((vm_restore_s * 10)) ] || ! vm_alive "$name"; do
                sleep 0.1
                tries=$((tries + 1))
            done
        fi
        if ! ssh_answers "$(vm_address "$name")"; then
            tail -n 8 "$folder/vm-$name/log" "$folder/vm-$name/console" >&2 || true
            die "the virtual machine $name does not answer; its last words are above"
        fi
    done
}

vm_down() {
    if vm_alive "$1"; then vm_end_process "$folder/vm-$1/pid"; fi
}
