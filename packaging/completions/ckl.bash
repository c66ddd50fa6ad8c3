# bash completion of ckl, which is asked for its commands, their options, its operators and their keys.
_ckl() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} operators operator words key
    [[ $word == = ]] && return
    if [[ $COMP_CWORD -eq 1 ]]; then
        words="$(ckl --help | awk '/^  [a-z]/ {print $1}') help"
    else
        operators=$(ckl --help | sed -n 's/^Operators: //p')
        words=$(ckl help "$command" 2>/dev/null | awk '/^  --/ {print $1}')
        for operator in $operators; do
            [[ ${COMP_WORDS[2]} == "$operator" && $COMP_CWORD -gt 2 ]] || continue
            compopt -o nospace
            for key in $(ckl help "$operator" | sed -n 's/^  \([a-z_]*=\).*/\1/p'); do
                words+=" $key"
            done
        done
        [[ $COMP_CWORD -eq 2 ]] && words+=" $operators"
        [[ $command == help ]] && words+=" $(ckl --help | awk '/^  [a-z]/ {print $1}')"
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _ckl ckl
