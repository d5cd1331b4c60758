# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# The functions of guests that run jobs, for a guest's init or a service of its systemd. Every line for the host starts with "==>";
# what lies between a job's two lines is that job's output.

# Milliseconds since the kernel started.
now() {
    read -r up rest </proc/uptime
    echo "$((${up%.*} * 1000 + 1${up#*.} * 10 - 1000))"
}

# Says which kernel has come up.
say_kernel() {
    echo "==> guest kernel=$(uname -r) boot_ms=$(now)"
}

# Runs one job: its name, its seconds, its command.
run_job() {
    echo "==> begin $1"
    start=$(now)
    timeout -s KILL "$2" sh -c "$3" </dev/null 2>&1
    rc=$?
    echo
    echo "==> end $1 rc=$rc ms=$(($(now) - start))"
}

tab=$(printf '\t')

# Runs the jobs of its standard input, one a line, until "end".
run_jobs() {
    while IFS=$tab read -r id limit command; do
        [ "$id" = end ] && break
        run_job "$id" "$limit" "$command"
    done
}

# The complaints of a kernel. The host looks for the same ones on the console.
complaints='WARNING:|BUG:|Oops|Call Trace|general protection|Kernel panic'

# Prints the complaints in the kernel's log, and the driver's failures. A module without a signature is no failure.
say_complaints() {
    dmesg | grep -v 'module verification failed' |
        grep -E "$complaints|virtio_gpgpu.*(fail|error)" | sed 's/^/==> kernel /'
}
