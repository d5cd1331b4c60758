# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Completion for vhost-device-gpgpu. The options come from --help, so they are those of the installed program.

_vhost_device_gpgpu() {
    local program=$1 word=$2 before=$3 values help
    COMPREPLY=()
    case $before in
    --gpu) values="auto cuda software" ;;
    --log-format) values="text json" ;;
    --sandbox) values="namespace none" ;;
    --seccomp) values="kill log trap none" ;;
    --warm-contexts | --mover | --scheduler | --launch-graphs) values="true false" ;;
    --libraries-ahead) values="cublas cublaslt cudnn cufft curand cusparse cusolver cusparselt nvjpeg cupti" ;;
    --software-gpu | --libraries)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$word")
        return
        ;;
    --config | --socket-path | -s)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --metrics) values="unix:/run/virtio-gpgpu/metrics.sock 127.0.0.1:9400" ;;
    *)
        help=(--help)
        [[ ${COMP_WORDS[1]} == top ]] && help=(top --help)
        values=$("$program" "${help[@]}" 2>/dev/null | grep -oE -- '(^|[ ,])--[a-z][a-z-]+' | tr -d ' ,')
        ((COMP_CWORD == 1)) && values+=" top"
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
}
complete -F _vhost_device_gpgpu vhost-device-gpgpu
