# shellcheck shell=bash
# The image of a kind node: KIND_NODE_IMAGE where that is set, else made here without a registry.

# systemd and containerd run the node; the rest is what kubelet, kube-proxy and kind call, and what tests look with.
node_packages=(systemd systemd-sysv dbus containerd runc containernetworking-plugins
  conntrack ethtool iproute2 iptables kmod mount nftables procps socat util-linux
  bash ca-certificates curl hostname jq libseccomp2 wrk)

node_image() {
  if [ -n "${KIND_NODE_IMAGE:-}" ]; then echo "$KIND_NODE_IMAGE"; else echo "localhost/tunedweb-e2e/node:$(node_fingerprint)"; fi
}

# tools_image: a pod of it has wrk, curl, ss and nsenter. It is in every node that was made here.
tools_image() { [ -n "${KIND_NODE_IMAGE:-}" ] || echo "localhost/tunedweb-e2e/tools:$(node_fingerprint)"; }

node_fingerprint() {
  fingerprint "$root"/e2e/node/{Dockerfile,containerd.toml,pause.c} "$root"/e2e/tools/{kubernetes,etcd,coredns,kind}/go.mod \
    <(echo "${node_packages[@]}")
}

build_node_image() {
  [ -z "${KIND_NODE_IMAGE:-}" ] || return 0
  docker image inspect "$(node_image)" >/dev/null 2>&1 && return
  docker images --format '{{.Repository}}:{{.Tag}}' 'localhost/tunedweb-e2e/*' | xargs -r docker rmi || true # former ones
  local work=$cache/node-image # always the same, so that an interrupted run leaves nothing behind for good
  rm -rf "$work"
  mkdir -p "$work"
  make_base "$work"
  make_node "$work"
  make_control_plane_images "$work/images"
  fill_node_store "$work/images"
  rm -rf "$work"
}

# make_base WORK: Debian's bookworm has systemd 252 and containerd 1.6, which run under both versions of cgroups.
make_base() {
  local packages
  note 'Debian packages'
  packages=$(IFS=, && echo "${node_packages[*]}")
  as_root mmdebstrap --variant=minbase --include="$packages" bookworm "$1/base.tar"
  docker import "$1/base.tar" "$(tools_image)"
  rm -f "$1/base.tar"
}

# make_node WORK: the node without the images that kubeadm starts.
make_node() {
  local context=$1/node module
  module=$(cd "$root/e2e/tools/kind" && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
  note 'node'
  mkdir "$context"
  cp -r "$module/images/base/files" "$context/files"
  chmod -R u+w "$context/files"
  cp "$root/e2e/node/Dockerfile" "$kubernetes_tools"/{kubeadm,kubelet,kubectl} "$context"
  sed "s|PAUSE_IMAGE|$(control_plane_image pause)|" "$root/e2e/node/containerd.toml" >"$context/containerd.toml"
  echo "$kubernetes_version" >"$context/version"
  docker build -q --build-arg "BASE=$(tools_image)" -t "$(node_image)-empty" "$context"
}

# control_plane_image NAME: under this reference kubeadm expects it.
control_plane_image() {
  "$kubernetes_tools/kubeadm" config images list --kubernetes-version "$kubernetes_version" | grep "/$1:"
}

make_control_plane_images() {
  local images=$1 program references=()
  note 'images of the control plane'
  mkdir "$images"
  for program in kube-apiserver kube-controller-manager kube-scheduler; do
    make_image "$images" "$program" scratch "$kubernetes_tools/$program" /usr/local/bin/
  done
  make_image "$images" etcd scratch "$etcd_tools/etcd" /usr/local/bin/
  make_image "$images" coredns scratch "$coredns_tools/coredns" /
  cc -static -Os -s -Wall -o "$images/pause" "$root/e2e/node/pause.c"
  make_image "$images" pause scratch "$images/pause" /
  make_image "$images" kube-proxy "$(tools_image)" "$kubernetes_tools/kube-proxy" /usr/local/bin/
  for program in kube-{apiserver,controller-manager,scheduler,proxy} etcd coredns pause; do
    references+=("$(control_plane_image "$program")")
  done
  docker save -o "$images/all.tar" "$(tools_image)" "${references[@]}"
}

# make_image WORK NAME BASE FILE FOLDER
make_image() {
  local context=$1/$2.context
  mkdir "$context"
  cp "$4" "$context/$2"
  printf 'FROM %s\nCOPY %s %s\nENTRYPOINT ["%s"]\n' "$3" "$2" "$5" "$5$2" >"$context/Dockerfile"
  docker build -q -t "$(control_plane_image "$2")" "$context"
  rm -rf "$context"
}

# fill_node_store IMAGES: the node's own containerd keeps what kubeadm starts.
fill_node_store() {
  local container
  note 'images into the node'
  container=$(docker run -d --privileged --entrypoint sleep -v "$1:/images:ro" "$(node_image)-empty" infinity)
  docker exec "$container" bash -euc '
    containerd & daemon=$!
    for _ in $(seq 100); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
    ctr -n k8s.io images import --no-unpack /images/all.tar
    kill $daemon; wait $daemon'
  docker commit --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' "$container" "$(node_image)"
  docker rm -f "$container"
  docker rmi "$(node_image)-empty" # only its name: the layers are the node's
}
