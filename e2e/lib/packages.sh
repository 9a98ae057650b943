# shellcheck shell=bash
# What must be on the machine: three toolchains that its owner chooses, and Debian packages.

# toolchains: Rust, Go and a C compiler are named, not installed.
toolchains() {
  local missing=()
  command -v cargo >/dev/null || missing+=('Rust (rustup; rust-toolchain.toml names the version)')
  go_is_recent || missing+=('Go 1.24 or later')
  command -v cc >/dev/null || missing+=('a C compiler (apt-get install gcc libc6-dev)')
  ((${#missing[@]} == 0)) || die "not found: $(printf '%s; ' "${missing[@]}")install and run again"
}

go_is_recent() {
  local minor
  minor=$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p') # Debian 12's own prints go1.19
  ((${minor:-0} >= 24))
}

# packages_needed: those that are not installed, one a line.
packages_needed() {
  local wanted=(ca-certificates curl procps jq util-linux) package
  [ -n "${KIND_NODE_IMAGE:-}" ] || wanted+=(mmdebstrap)
  docker_answers || wanted+=(docker.io iptables)
  for package in "${wanted[@]}" "$@"; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || echo "$package"
  done
}

# install_packages [PACKAGE...]: what every run needs, and these.
install_packages() {
  local missing
  mapfile -t missing < <(packages_needed "$@")
  ((${#missing[@]})) || return 0
  note "installing ${missing[*]}"
  as_root apt-get update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}
