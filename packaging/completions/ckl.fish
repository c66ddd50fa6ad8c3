# fish completion of ckl, which is asked for its commands, their options, its operators and their keys.
function __ckl_words
    set -l words (commandline -opc)
    set -l count (count $words)
    if test $count -eq 1 -o "$words[2]" = help
        ckl --help | string replace -rf '^  ([a-z]+) +(.*)' '$1\t$2'
        test $count -eq 1 && echo help && return
    end
    ckl help $words[2] 2>/dev/null | string replace -rf '^  (--\S+).*' '$1'
    set -l operators (ckl --help | string replace -rf '^Operators: ' '' | string split ' ')
    if test $count -eq 2
        printf '%s\n' $operators
    else if contains -- $words[3] $operators
        ckl help $words[3] | string replace -rf '^  ([a-z_]+=)\S* +(.*)' '$1\t$2'
    end
end
complete -c ckl -a '(__ckl_words)'
