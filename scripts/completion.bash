# Completion of the vpmu command for bash: subcommands and options as its own help lists them.

_vpmu() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[0]} choices
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    choices=$("$command" --help 2>/dev/null | sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\).*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$choices --help --version" -- "$word")
  elif [[ $word == -* ]]; then
    choices=$("$command" "${COMP_WORDS[1]}" --help 2>/dev/null | grep -o -- '--[a-z][a-z-]*' | sort -u)
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _vpmu vpmu
