# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Completion for gpgpu-smi.

_gpgpu_smi() {
    local word=$2 before=$3 values
    COMPREPLY=()
    case $before in
    --format) values="csv csv,noheader csv,noheader,nounits" ;;
    --id | -i) values=$("$1" --query-gpu index --format csv,noheader 2>/dev/null) ;;
    --query-gpu) values="timestamp index count name uuid pci.bus_id driver_version memory.total memory.used memory.free memory.reserved
        utilization.gpu compute_cap compute_mode temperature.gpu temperature.memory power.draw power.draw.instant
        power.limit enforced.power.limit power.default_limit power.min_limit power.max_limit pstate clocks.gr clocks.sm
        clocks.mem clocks.video clocks.max.gr clocks.max.sm clocks.max.mem" ;;
    --loop | -l) return ;;
    *) values="--list-gpus --query-gpu --format --id --loop --help --version" ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
}
complete -F _gpgpu_smi gpgpu-smi
