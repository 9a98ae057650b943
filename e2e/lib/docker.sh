# shellcheck shell=bash
# Docker: the one that answers, or else a daemon of our own that keeps everything in the cache.

own_docker=$cache/docker
export DOCKER_BUILDKIT=0 # the classic builder needs neither a plugin nor a registry

docker_answers() { docker info >/dev/null 2>&1; }

own_docker_pid() {
  local pid
  pid=$(cat "$own_docker/docker.pid" 2>/dev/null) || return 1
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && echo "$pid"
}

# find_docker: our own daemon where it runs, because our clusters are in it.
find_docker() {
  if own_docker_pid >/dev/null; then export DOCKER_HOST=unix://$own_docker/docker.sock; fi
}

# use_docker: after this `docker` works.
use_docker() {
  find_docker
  docker_answers && return
  if docker info 2>&1 | grep -q 'permission denied'; then
    die "Docker runs, but not for $(id -un): add this user to the group docker, or run as root"
  fi
  start_own_docker
}

start_own_docker() {
  local options=()
  mkdir -p "$own_docker"
  ((${#own_docker} < 80)) || die "the path $own_docker is too long for a socket; set TUNEDWEB_CACHE to a shorter one"
  if ! may_raise_limits; then # dockerd outlives this checkout, so it gets a copy
    install -m 755 "$root/e2e/node/runc-capped" "$own_docker/runc-capped"
    options=(--add-runtime "capped=$own_docker/runc-capped" --default-runtime capped)
  fi
  # No docker0: kind makes its own network, and another daemon's bridge is left alone. The daemon takes the place
  # of the subshell and inherits no descriptor, so that a pipe behind this script, and its lock, end with it.
  (
    exec 3>&- 4>&- 9>&-
    exec "${root_prefix[@]}" setsid nohup dockerd --bridge none --group "$(id -g)" --data-root "$own_docker/data" \
      --exec-root "$own_docker/exec" --pidfile "$own_docker/docker.pid" \
      --host "unix://$own_docker/docker.sock" "${options[@]}" >"$own_docker/dockerd.log" 2>&1 </dev/null
  ) &
  export DOCKER_HOST=unix://$own_docker/docker.sock
  within 60 docker_answers || {
    tail -n 20 "$own_docker/dockerd.log"
    die "dockerd did not answer within 60 s; its log is $own_docker/dockerd.log"
  }
}

# may_raise_limits: whether this machine lets root have CAP_SYS_RESOURCE (capability 24, capabilities(7)).
may_raise_limits() {
  local bounding
  bounding=$(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)
  (((0x$bounding >> 24) & 1))
}

# stop_own_docker: where it is ours and holds no other cluster.
stop_own_docker() {
  local pid
  pid=$(own_docker_pid) || return 0
  [ -z "$(kind get clusters 2>/dev/null)" ] || return 0
  docker network rm kind 2>/dev/null || true
  as_root kill "$pid"
  within 60 own_docker_is_gone
}

own_docker_is_gone() { ! own_docker_pid >/dev/null; }
