# shellcheck shell=bash
# Our programs as static binaries, and their images, which go from the builder into the nodes without a registry.

programs=(server tuner loadgen operator agent)
architecture=$(dpkg --print-architecture) # amd64 or arm64: the words of Debian and of image platforms agree
dist=$root/dist/$architecture

target_folder=${CARGO_TARGET_DIR:-$root/target}

# build_programs: glibc linked statically, since the images hold nothing else.
# The data plane is optimised as far as it goes. The control plane, whose Kubernetes client is large, has a
# profile of its own, and so has the program that the entry points call, because it shares that client.
build_programs() {
  build_static release server tuner loadgen
  build_static image operator agent e2e
}

# build_static PROFILE PROGRAM...: into dist. The target is named so that macros and build scripts stay dynamic.
build_static() {
  local profile=$1 target program packages=()
  shift
  note "$*"
  target=$(rustc -vV | sed -n 's/^host: //p')
  for program in "$@"; do packages+=(-p "tunedweb-$program"); done
  RUSTFLAGS='-C target-feature=+crt-static' cargo build --manifest-path "$root/Cargo.toml" --locked --bins \
    --profile "$profile" --target "$target" --target-dir "$target_folder" "${packages[@]}"
  mkdir -p "$dist"
  for program in "$@"; do
    install -m 755 "$target_folder/$target/$profile/tunedweb-$program" "$dist/tunedweb-$program"
  done
}

# image_reference PROGRAM: the tag follows from what is in the image, so that a changed program is a changed image.
image_reference() {
  local version
  version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
  echo "localhost/tunedweb-$1:$version-dev-$(fingerprint "$dist/tunedweb-$1" "$root/Dockerfile")"
}

build_images() {
  local program reference current=()
  for program in "${programs[@]}"; do
    reference=$(image_reference "$program")
    current+=("$reference")
    docker image inspect "$reference" >/dev/null 2>&1 ||
      docker build -q --target "$program" --build-arg "TARGETARCH=$architecture" -t "$reference" "$root"
  done
  remove_images_but "${current[@]}"
  kind load docker-image --name "$cluster" "${current[@]}"
  write_values
}

# remove_images_but REFERENCE...: those of former builds.
remove_images_but() {
  docker images --format '{{.Repository}}:{{.Tag}}' 'localhost/tunedweb-*' |
    { grep -vxF "$(printf '%s\n' "$@")" || true; } | xargs -r docker rmi
}

# write_values: the chart's values that name these images.
write_values() {
  local program
  {
    echo 'images:'
    for program in "${programs[@]}"; do printf '  %s: %s\n' "$program" "$(image_reference "$program")"; done
  } >"$TUNEDWEB_VALUES"
}
