# Runs one program for as long as the process at the other end of standard input lives: sh -c SCRIPT name DIR OUT ERR PROGRAM ARGS…
# Lines understood on standard input: freeze, thaw, stop. End of file means that the starter is gone, by whatever death:
# the program is killed and DIR is removed, or only the data below it when DIR/keep says that somebody wants the logs.
dir=$1 out=$2 err=$3
shift 3
exec 3<&0
"$@" 3<&- </dev/null >>"$out" 2>>"$err" &
program=$!
(
  orphaned=4
  while read -r word <&3; do
    case $word in
      freeze) kill -STOP "$program" ;;
      thaw) kill -CONT "$program" ;;
      stop) orphaned=3; break ;;
    esac
  done
  # From here on the exit status must reach the shell above, which asks us to go as soon as the program is dead.
  trap '' TERM
  kill -KILL "$program"
  exit "$orphaned"
) &
listener=$!
wait "$program"
status=$?
kill -TERM "$listener"
wait "$listener"
if [ $? -eq 4 ]; then
  if [ -e "$dir/keep" ]; then
    rm -rf "$dir"/*/data
  else
    rm -rf "$dir"
  fi
fi
exit "$status"
