# SPDX-License-Identifier: BSD-2-Clause
# Bash completion of peerlane(1).  Options and commands come from the help of the command, so they are always current.

# Filters help text: prints the long options, with "=" if they take a value.
_peerlane_long_options() {
	sed -n 's/^  \(-., \|    \)\(--[a-z-]*\)\(\[\?=\)\?.*/\2\3/p' | tr -d '['
}

# Prints the options of a command of one or two words: its own, then the shared ones that it accepts.
_peerlane_options() {
	local text
	text=$("$@" --help 2>/dev/null </dev/null)
	_peerlane_long_options <<<"$text"
	if [[ $text == *'Connection and output options:'* ]]; then
		"$1" help options 2>/dev/null </dev/null | _peerlane_long_options
	elif [[ $text == *'Output options:'* ]]; then
		"$1" help options 2>/dev/null </dev/null | sed '/^ Connection/,/^ Output/d' | _peerlane_long_options
	fi
}

# True if a command of one or two words takes a value behind the option.
_peerlane_takes_value() {
	local option=$1
	shift
	{
		"$@" --help
		"$1" help options
	} 2>/dev/null </dev/null | grep -qE -- "^  (-., |    )$option=|^  $option, --[a-z-]+="
}

_peerlane_commands() {
	"$1" --help 2>/dev/null </dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'
}

# Prints the subcommands of `peerlane bench` or `peerlane fleet`.
_peerlane_subcommands() {
	"$1" "$2" --help 2>/dev/null </dev/null | sed -n "s/^  peerlane $2 \([a-z]*\)   *[a-z].*/\1/p" | tr '\n' ' '
}

# Prints the names that a server publishes, as a command ("list", or "streams" with options) lists them, using the key,
# the token and the address given so far on the command line.
_peerlane_names() {
	local i option value address='' options=() program=$1
	shift
	for ((i = 2; i < COMP_CWORD; i++)); do
		option=''
		case ${COMP_WORDS[i]} in
		--key | -k | --identity | --peer | --known-hosts | --ca | --authorized | --old-key | --output | -o | --memory | -m | --fabric | -F | --lanes | -S | --rails | --device | --topology | --traffic-class | --service-level | --gid-index | --pkey | --ack-timeout | --retries | --rnr-timer | --gpu-multiprocessors | --timeout | -t | --start | --overflow | --queue | --every | --count | --to | --snapshot | --reconnect | --memory-limit | --seconds | --token | --share | --lifetime | --listen | --name | --slots | --patience | --staging-memory | --offset | --length) option=${COMP_WORDS[i++]} ;;
		-*) continue ;;
		esac
		# bash splits HOST:PORT into words.
		value=${COMP_WORDS[i]-}
		while [[ ${COMP_WORDS[i + 1]-} == : || ${COMP_WORDS[i]-} == : ]] && ((i + 1 < COMP_CWORD)); do
			value+=${COMP_WORDS[++i]}
		done
		case $option in
		'')
			address=$value
			break
			;;
		--key | -k) options+=(--key "$value") ;;
		--identity | --peer | --known-hosts | --ca | --token) options+=("$option" "$value") ;;
		esac
	done
	((i < COMP_CWORD)) && [[ $address ]] || return
	# A name with a control character, which JSON writes as an escape sequence, is left out.
	"$program" "$@" "${options[@]}" --timeout 2 --json "$address" 2>/dev/null </dev/null |
		sed -n '/^\([^\\]\|\\["\\]\)*$/!d; s/^ *"name": "\(.*\)",$/\1/; T; s/\\\(.\)/\1/g; p'
}

# Offers the lines of standard input that begin with the current word, quoted for the shell.  compgen -W would expand
# "$(command)" in them, and servers choose their names.  A name that begins with "-" would become an option.  Behind an open
# quote a line stays as it is, and one with a character that is special there is left out.
_peerlane_reply_lines() {
	local line quoted begin=${current#[\"\']}
	while IFS= read -r line; do
		[[ $line != -* ]] || continue
		if [[ $begin != "$current" ]]; then
			[[ $line == "$begin"* && $line != *[\"\'\$\`\\!]* ]] && COMPREPLY+=("$line")
		else
			printf -v quoted %q "$line"
			[[ $line == "$current"* || $quoted == "$current"* ]] && COMPREPLY+=("$quoted")
		fi
	done
}

_peerlane() {
	local program=$1 current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command=${COMP_WORDS[1]-} IFS=$'\n'
	COMPREPLY=()

	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W "$(_peerlane_commands "$program")"$'\n--help\n--version' -- "$current"))
		return
	fi
	case $previous in
	--explain | --ignore)
		COMPREPLY=($(compgen -W "$("$program" check --list 2>/dev/null </dev/null | sed -n 's/^  \([a-z0-9-]*\) .*/\1/p')" -- "$current"))
		return
		;;
	--call)
		COMPREPLY=($(compgen -W $'ibv_reg_mr\nibv_reg_dmabuf_mr\nibv_open_device\nibv_create_qp\nibv_modify_qp\nibv_poll_cq\nrdma_resolve_addr\nrdma_connect\nnvidia_p2p_get_pages\nmmap\nmodprobe\ncuInit\ncuMemAlloc\ncuMemGetHandleForAddressRange' -- "$current"))
		return
		;;
	--format)
		COMPREPLY=($(compgen -W $'text\njson\nline\nprometheus\nnagios' -- "$current"))
		return
		;;
	--fail-on)
		COMPREPLY=($(compgen -W $'fail\nwarn\nunknown' -- "$current"))
		return
		;;
	--expect)
		COMPREPLY=($(compgen -W $'gpus=\ncards=\nrate=\nlinks=\ndriver=\ndirect=' -- "$current"))
		[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
		return
		;;
	--compute)
		COMPREPLY=($(compgen -W $'cuda\ncuda:0\nsimulated' -- "$current"))
		return
		;;
	--memory | -m | --peer-memory)
		[[ $command == get || $command == put ]] && COMPREPLY=($(compgen -W $'cuda\ncuda:0' -- "$current"))
		[[ $command == @(publish|subscribe|bench) ]] && COMPREPLY=($(compgen -W $'host\ncuda\ncuda:0' -- "$current"))
		return
		;;
	--progress)
		COMPREPLY=($(compgen -W $'manual\nthread' -- "$current"))
		return
		;;
	--inject)
		[[ $command == demo ]] && COMPREPLY=($(compgen -W $'gpu-push\ngpu-host\ngpu-write\ngpu-host-write' -- "$current"))
		[[ $command == bench ]] && COMPREPLY=($(compgen -W $'source\ncompute\nresult' -- "$current"))
		return
		;;
	--schedule)
		COMPREPLY=($(compgen -W $'pairs\nring\nall-to-all\none-to-all' -- "$current"))
		return
		;;
	--start)
		COMPREPLY=($(compgen -W $'live\nlatest\nhistory:\nsequence:' -- "$current"))
		[[ ${COMPREPLY[0]-} == *: ]] && compopt -o nospace 2>/dev/null
		return
		;;
	--overflow)
		COMPREPLY=($(compgen -W $'drop-oldest\ndrop-newest\nblock' -- "$current"))
		return
		;;
	--dtype)
		COMPREPLY=($(compgen -W $'u8\nu16\nu32\nu64\ni8\ni16\ni32\ni64\nf16\nf32\nf64\nbf16\nc64\nc128\nbool' -- "$current"))
		return
		;;
	--sandbox)
		COMPREPLY=($(compgen -W $'auto\noff\nrequire' -- "$current"))
		return
		;;
	--type)
		COMPREPLY=($(compgen -W $'ed25519\np256' -- "$current"))
		return
		;;
	--plot)
		COMPREPLY=($(compgen -W $'bandwidth\nframes\nlatency\npercentiles\nphases\nsamples\nmatrix\nmatrix-latency\ngoals' -- "$current"))
		return
		;;
	--sysroot | -r)
		# `peerlane bench workflow` has -r for a number.
		if [[ $command != bench ]]; then
			compopt -o filenames 2>/dev/null
			COMPREPLY=($(compgen -f -- "$current"))
			return
		fi
		;;&
	--op | -o)
		if [[ $command == bench && ${COMP_WORDS[2]-} == kv ]]; then
			COMPREPLY=($(compgen -W $'read\nwrite' -- "$current"))
			return
		elif [[ $command == bench && ! " ${COMP_WORDS[*]} " =~ [[:space:]](--matrix|--mpi)[[:space:]] ]]; then
			COMPREPLY=($(compgen -W $'write\nread\nsend\nfetch-add\ncompare-swap\nregister\nconnect' -- "$current"))
			return
		fi
		;;&
	--hosts)
		# A list of names for `peerlane bench --matrix`.
		[[ $command == fleet ]] || return
		;;&
	--hosts | --groups | --program | --key | -k | --old-key | --identity | --known-hosts | --authorized | --ca | --audit | --pid-file | --reload | --output | -o | --svg | --html | --nccl-topology | --topology | --save | --resume | --replay | --config | --baseline | --cached | --from | --to | --snapshot | --token | --share)
		compopt -o filenames 2>/dev/null
		COMPREPLY=($(compgen -f -- "$current"))
		return
		;;
	--upload | -u)
		compopt -o filenames 2>/dev/null
		COMPREPLY=($(compgen -d -- "$current"))
		return
		;;
	--device)
		_peerlane_reply_lines < <(cd /sys/class/infiniband 2>/dev/null && printf '%s\n' *)
		return
		;;
	--fabric | -F)
		COMPREPLY=($(compgen -W $'auto\nlocal\nverbs\ntcp' -- "$current"))
		return
		;;
	esac
	# Commands of two words, such as `peerlane bench compare`.
	local words=("$command")
	if [[ $command == @(bench|fleet) && " $(_peerlane_subcommands "$program" "$command") " == *" ${COMP_WORDS[2]-} "* ]]; then
		((COMP_CWORD > 2)) && words+=("${COMP_WORDS[2]}")
	fi
	# `peerlane bench --matrix` has options of its own.
	if ((${#words[@]} == 1)) && [[ $command == bench && " ${COMP_WORDS[*]} " =~ [[:space:]](--matrix|--mpi)[[:space:]] ]]; then
		words+=("${BASH_REMATCH[1]}")
	fi
	# A value of which nothing is known: names of files or servers are no help.
	if [[ $previous == -* ]] && _peerlane_takes_value "$previous" "$program" "${words[@]}"; then
		return
	fi
	if [[ $current == -* ]]; then
		COMPREPLY=($(compgen -W "$(_peerlane_options "$program" "${words[@]}")" -- "$current"))
		[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
		return
	fi
	case $command in
	help)
		COMPREPLY=($(compgen -W "$(_peerlane_commands "$program")"$'\noptions' -- "$current"))
		;;
	bench | fleet)
		if ((COMP_CWORD == 2)); then
			IFS=' '
			COMPREPLY=($(compgen -W "$(_peerlane_subcommands "$program" "$command")" -- "$current"))
		elif ((${#words[@]} > 1)) && [[ $command == bench || ${words[1]} == @(show|compare) ]]; then
			compopt -o filenames 2>/dev/null
			COMPREPLY=($(compgen -f -- "$current"))
		fi
		;;
	key)
		if ((COMP_CWORD == 2)); then
			COMPREPLY=($(compgen -W $'generate\nshow\ngroup' -- "$current"))
		else
			compopt -o filenames 2>/dev/null
			COMPREPLY=($(compgen -f -- "$current"))
		fi
		;;
	serve | put | report | replay)
		compopt -o filenames 2>/dev/null
		COMPREPLY=($(compgen -f -- "$current"))
		;;
	get | delete)
		_peerlane_reply_lines < <(_peerlane_names "$program" list)
		;;
	subscribe | relay | record)
		_peerlane_reply_lines < <(_peerlane_names "$program" streams --interval 0)
		;;
	esac
}

complete -F _peerlane peerlane
