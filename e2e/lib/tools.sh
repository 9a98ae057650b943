# shellcheck shell=bash
# Kubernetes, etcd, CoreDNS, kind and Helm, built from their Go modules. The folders of e2e/tools pin
# them: go.mod the versions, go.sum what must arrive. To move one: `go get -tool PACKAGE@VERSION` there;
# for Kubernetes also the replaced k8s.io modules, v0.X.Y beside v1.X.Y.

# module_version FOLDER MODULE
module_version() { sed -n "s|^\(require\)\?[[:space:]]*$2 \(v[0-9.]*\)\( // indirect\)\?$|\2|p" "$root/e2e/tools/$1/go.mod"; }

kubernetes_version=$(module_version kubernetes k8s.io/kubernetes)
kubernetes_tools=$cache/tools/kubernetes-$kubernetes_version
etcd_tools=$cache/tools/etcd-$(module_version etcd go.etcd.io/etcd/server/v3)
coredns_tools=$cache/tools/coredns-$(module_version coredns github.com/coredns/coredns)
kind_tools=$cache/tools/kind-$(module_version kind sigs.k8s.io/kind)
helm_tools=$cache/tools/helm-$(module_version helm helm.sh/helm/v3)
export PATH=$kubernetes_tools:$kind_tools:$helm_tools:$PATH

# build_tools: those that the cache lacks. With a node image from elsewhere the node's programs are not needed.
build_tools() {
  local program node=(kubeadm kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy)
  build_tool "$kind_tools" kind sigs.k8s.io/kind
  build_tool "$helm_tools" helm helm.sh/helm/v3/cmd/helm
  build_tool "$kubernetes_tools" kubectl k8s.io/kubernetes/cmd/kubectl
  [ -z "${KIND_NODE_IMAGE:-}" ] || return 0
  for program in "${node[@]}"; do
    build_tool "$kubernetes_tools" "$program" "k8s.io/kubernetes/cmd/$program"
  done
  build_tool "$etcd_tools" etcd go.etcd.io/etcd/server/v3
  build_tool "$coredns_tools" coredns github.com/coredns/coredns
}

# build_tool FOLDER PROGRAM PACKAGE
build_tool() {
  local folder=$1 program=$2 package=$3 flags='-s -w' module
  [ ! -x "$folder/$program" ] || return 0
  note "$program"
  module=$(basename "${folder%-v*}")
  if [ "$module" = kubernetes ]; then # without these the programs call themselves v0.0.0
    local variables=k8s.io/component-base/version major minor
    IFS=. read -r major minor _ <<<"${kubernetes_version#v}"
    flags+=" -X $variables.gitVersion=$kubernetes_version -X $variables.gitMajor=$major -X $variables.gitMinor=$minor"
  fi
  mkdir -p "$folder"
  (cd "$root/e2e/tools/$module" &&
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$flags" -o "$folder/.$program" "$package")
  mv "$folder/.$program" "$folder/$program"
}
