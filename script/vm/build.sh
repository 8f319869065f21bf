# shellcheck shell=bash disable=SC2154
# How a virtual machine of the testbed is made: its disk, and the state that it is saved in. Sourced by script/vm.sh.
#
# What is in this folder goes into the key of what is cached: a change here rebuilds the machines.

vm_memory_mib=768
vm_processors=2
vm_disk=4G
vm_boot_s=120
vm_engine_answers='until docker version; do sleep 0.5; done'

# Prints what names everything that goes into a machine.
vm_key() {
    {
        cat "$vm_sources"/*
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

# KVM may be there and not start a guest, inside of another virtual machine: only a boot tells. Asked once a boot.
vm_find_kind() {
    local answer said
    answer=$vm_folder/kvm-$(cat /proc/sys/kernel/random/boot_id)
    if [ ! -f "$answer" ]; then
        rm -f "$vm_folder"/kvm-????????-*
        echo no >"$answer.part"
        if [ -w /dev/kvm ]; then
            # All that it says first: to a reader who goes when he has seen enough, QEMU could not go on writing.
            said=$(timeout 10 qemu-system-x86_64 -nodefaults -display none -no-reboot -machine q35 -accel kvm -cpu host \
                -m 256 -kernel "$vm_folder/vmlinuz" -initrd "$vm_folder/initrd" -serial stdio \
                -append 'console=ttyS0 quiet panic=-1 weighbridge.probe' </dev/null 2>/dev/null | tr -d '\0') || true
            case $said in *'this machine runs'*) echo yes >"$answer.part" ;; esac
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
    # Variables of a proxy are handed on without a value: as they are here.
    vm_step "packages and kernel" docker build --network host --build-arg http_proxy --build-arg https_proxy \
        --build-arg no_proxy --tag "$image" "$vm_sources" || exit
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
    install -m 755 "$vm_sources/engine" "$work/root/sbin/weighbridge-engine"
}

vm_make_initrd() {
    local kernel module path
    kernel=$(ls "$work/root/lib/modules") || return
    mkdir -p "$work"/ram/{bin,dev,disk,mod,proc} || return
    mv "$work/root/boot/vmlinuz" "$work/vmlinuz" || return
    install -m 755 "$vm_sources/initrd-init" "$work/ram/init"
    cp "$(command -v busybox)" "$work/ram/bin/busybox" || return
    for module in virtio_pci virtio_blk ext4; do
        chroot "$work/root" modprobe --show-depends -S "$kernel" "$module" || return
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >"$work/ram/paths"
    while read -r path; do
        cp "$work/root$path" "$work/ram/mod/" || return
        basename "$path" >>"$work/ram/modules"
    done <"$work/ram/paths"
    (cd "$work/ram" && find . | cpio --quiet -o -H newc | gzip -1 >"$work/initrd")
}

# Starts a machine on the disk and writes its state, once for each name, as soon as its engine has the image and has run
# a container. Who an engine is it decides when it starts: so that no two are the same, there is another for each name.
vm_make_states() {
    local name engine=
    work=$(mktemp -d /tmp/wb-vm-XXXXXX) || exit
    trap 'vm_end_process "$work/pid" 2>/dev/null; rm -rf "$work" "$vm_states.part"' EXIT
    trap 'exit 130' INT TERM
    rm -rf "$vm_states.part"
    mkdir "$vm_states.part" || exit
    (cd "$vm_states.part" && qemu-img create -q -f qcow2 -b ../disk -F raw running) || exit
    (cd "$work" && vm_qemu "$vm_kind" "$vm_states.part/running" hubport,id=net,hubid=0 9>&- >"$work/log.qemu" 2>&1 </dev/null) &
    echo $! >"$work/pid"
    vm_step "start" vm_wait_listening "$work" || exit
    vm_step "start of its engine" vm_tell_script "$work" "$vm_engine_answers" || exit
    vm_step "load $vm_base into its engine" vm_tell_script "$work" 'docker load --input /image.tar && rm /image.tar' || exit
    for name in "${vm_names[@]}"; do
        if [ -n "$engine" ]; then
            vm_talk "$work/qmp" cont || exit
            vm_step "an engine for $name" vm_tell_script "$work" "weighbridge-engine anew; $vm_engine_answers" || exit
        fi
        engine=$name
        vm_step "first container of $name" vm_tell_script "$work" "docker run --rm $vm_base true && sync" || exit
        vm_step "save the state of $name" vm_talk "$work/qmp" save "$vm_states.part/$name.state" || exit
        cp "$vm_states.part/running" "$vm_states.part/$name.qcow2" || exit
    done
    vm_talk "$work/qmp" quit || exit
    wait
    rm "$vm_states.part/running"
    mv "$vm_states.part" "$vm_states"
}

vm_wait_listening() {
    local end=$((SECONDS + vm_boot_s))
    until grep -q 'weighbridge: listening' "$1/console"; do
        [ $SECONDS -lt $end ] && kill -0 "$(cat "$1/pid")" || return
        sleep 0.1
    done
}

vm_tell_script() { vm_talk "$1/tell" tell <<<"$2"; }
