# shellcheck shell=bash
# Names, folders and the way steps are shown. Sourced by e2e/demo and e2e/test.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${TUNEDWEB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tunedweb}
export demo_cluster=tunedweb-demo test_cluster=tunedweb-test

export PATH=$PATH:/usr/sbin:/sbin # Debian leaves these out for users: dockerd and sysctl are there

# A step's own output goes to its log; what a person reads goes to these two.
exec 3>&1 4>&2
step_count=0
step_text=
step_log=

# start NAME: makes the folders and sees to it that a failed step is explained. One run at a time: two would
# build into the same folders and change the same kernel's keys.
start() {
  cd "$root"
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock --nonblock 9 || die 'another e2e/demo or e2e/test of this machine runs: wait until it ends'
  logs=$cache/logs/$1
  rm -rf "$logs"
  mkdir -p "$logs"
  trap 'explain $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# step TEXT COMMAND [ARGUMENT...]: runs the command and prints how long it took.
step() {
  local text=$1 begun=$SECONDS
  shift
  step_count=$((step_count + 1))
  step_text=$text
  step_log=$logs/$(printf '%02d-%s.log' "$step_count" "${*##*/}" | tr -c 'a-z0-9.\n-' '_' | cut -c1-60)
  printf '%s … ' "$text" >&3
  "$@" >"$step_log" 2>&1 </dev/null
  printf '%s\n' "$(duration $((SECONDS - begun)))" >&3
  step_text=
}

# note TEXT: progress within a long step.
note() { printf '\n    %s … ' "$1" >&3; }

# die TEXT: what is wrong and what to do.
die() {
  step_text=
  printf '\n%s: %s\n' "${0##*/}" "$1" >&4
  exit 1
}

duration() {
  if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %d s' $(($1 / 60)) $(($1 % 60)); fi
}

explain() {
  [ "$1" -ne 0 ] && [ -n "$step_text" ] || return 0
  {
    printf '\n\n%s: this step failed: %s\n' "${0##*/}" "$step_text"
    printf 'The end of %s:\n\n' "$step_log"
    tail -n 30 "$step_log" | sed 's/^/    /'
  } >&4
  step_text=
  [ "$1" -ge 128 ] || exit 1
}

# within SECONDS COMMAND [ARGUMENT...]: asks again until the command succeeds or the time is over.
within() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.5
  done
}

root_prefix=()
((EUID == 0)) || root_prefix=(sudo)
as_root() { "${root_prefix[@]}" "$@"; }

# fingerprint FILE...: twelve digits that change with any of the files.
fingerprint() { cat -- "$@" | sha256sum | cut -c1-12; }
