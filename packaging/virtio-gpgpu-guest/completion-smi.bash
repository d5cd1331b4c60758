# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Completion for gpgpu-smi.

_gpgpu_smi() {
    local word=$2 before=$3 values
    COMPREPLY=()
    case $before in
    --format) values="csv csv,noheader csv,noheader,nounits" ;;
    --id | -i) values=$("$1" --query-gpu index --format csv,noheader 2>/dev/null) ;;
    --query-gpu) values="index name uuid pci.bus_id driver_version memory.total memory.used memory.free utilization.gpu compute_cap temperature.gpu temperature.memory power.draw power.limit pstate clocks.sm clocks.mem clocks.gr" ;;
    --loop | -l) return ;;
    *) values="--list-gpus --query-gpu --format --id --loop --help --version" ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
}
complete -F _gpgpu_smi gpgpu-smi
