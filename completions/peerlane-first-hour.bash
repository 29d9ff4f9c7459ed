# SPDX-License-Identifier: BSD-2-Clause
# Bash completion of peerlane-first-hour(1).  Options come from the help of the command, so they are always current.

# Prints the options of the help.
_peerlane_first_hour_options() {
	"$1" --help 2>/dev/null </dev/null | sed -n 's/^  \(--[a-z-]*\) .*/\1/p'
}

# True if the command takes a value behind the option.
_peerlane_first_hour_takes_value() {
	"$1" --help 2>/dev/null </dev/null | grep -qE -- "^  $2 [A-Z]+ "
}

_peerlane_first_hour() {
	local program=$1 current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path IFS=$'\n'
	COMPREPLY=()

	case $previous in
	--device)
		for path in /sys/class/infiniband/*; do
			[[ -e $path && ${path##*/} == "$current"* ]] && COMPREPLY+=("${path##*/}")
		done
		return
		;;
	--fabric)
		COMPREPLY=($(compgen -W $'auto\nlocal\nverbs\ntcp' -- "$current"))
		return
		;;
	--key | --output)
		compopt -o filenames 2>/dev/null
		COMPREPLY=($(compgen -f -- "$current"))
		return
		;;
	esac
	# A value of which nothing is known: names of files are no help.
	if [[ $previous == -* ]] && _peerlane_first_hour_takes_value "$program" "$previous"; then
		return
	fi
	COMPREPLY=($(compgen -W "$(_peerlane_first_hour_options "$program")" -- "$current"))
}

complete -F _peerlane_first_hour peerlane-first-hour
