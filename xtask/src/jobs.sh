# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# The functions of guests that run jobs, for a guest's init or a service of its systemd. Every line for the host starts with
# "==>"; the lines between a job's two lines are its output.

# Milliseconds since the kernel started.
now() {
    read -r up rest </proc/uptime
    echo "$((${up%.*} * 1000 + 1${up#*.} * 10 - 1000))"
}

# Reports the running kernel.
say_kernel() {
    echo "==> guest kernel=$(uname -r) boot_ms=$(now)"
}

# Runs one job: its name, its time limit in seconds, its command.
run_job() {
    echo "==> begin $1"
    start=$(now)
    timeout -s KILL "$2" sh -c "$3" </dev/null 2>&1
    rc=$?
    echo
    echo "==> end $1 rc=$rc ms=$(($(now) - start))"
}

tab=$(printf '\t')

# Runs the jobs in its standard input, one per line, until "end".
run_jobs() {
    while IFS=$tab read -r id limit command; do
        [ "$id" = end ] && break
        run_job "$id" "$limit" "$command"
    done
}

# The error messages of a kernel. The host searches the console for the same ones.
complaints='WARNING:|BUG:|Oops|Call Trace|general protection|Kernel panic'

# Prints the errors in the kernel's log and the driver's failures: first with the lines around them, then each for the host.
# A module without a signature is no failure.
say_complaints() {
    errors="$complaints|virtio_gpgpu.*(fail|error)"
    dmesg | grep -v 'module verification failed' >/tmp/dmesg
    grep -E -B 15 -A 40 "$errors" /tmp/dmesg
    grep -E "$errors" /tmp/dmesg | sed 's/^/==> kernel /'
}
