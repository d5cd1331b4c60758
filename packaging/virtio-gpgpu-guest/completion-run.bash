# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Completion for gpgpu-run: its options, then a command, then that command's own completion.

_gpgpu_run() {
    local word=$2 before=$3 at
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        case ${COMP_WORDS[at]} in
        --libdir) ((at++)) ;;
        --) ((at++)) && break ;;
        -*) ;;
        *) break ;;
        esac
    done
    if [[ $before == --libdir ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$word")
    elif ((at < COMP_CWORD)); then
        # The package bash-completion has these; without it, files.
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset "$at"
        elif declare -F _command_offset >/dev/null; then
            _command_offset "$at"
        else
            compopt -o default
        fi
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--check --libdir --no-device-check --help --version" -- "$word")
    else
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
    fi
}
complete -F _gpgpu_run gpgpu-run
