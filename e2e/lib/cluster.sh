# shellcheck shell=bash
# A kind cluster of one control plane and two workers.

# use_cluster NAME: what the other functions, kubectl and helm act on. The user's own kubeconfig is never touched.
use_cluster() {
  cluster=$1
  cluster_state=$cache/$cluster
  export KUBECONFIG=$cluster_state/kubeconfig
  export TUNEDWEB_VALUES=$cluster_state/values.yaml
}

cluster_exists() { [ -x "$kind_tools/kind" ] && kind get clusters 2>/dev/null | grep -qx "$1"; }

# refuse_beside OTHER UNDO: all nodes share this machine's kernel, and so would two clusters share its keys.
refuse_beside() {
  find_docker
  ! cluster_exists "$1" || die "the cluster $1 runs, and its nodes share the kernel's keys with this one's: remove it first with $2"
}

# cluster_up: as it is where all its nodes are ready, else anew.
cluster_up() {
  if cluster_exists "$cluster"; then
    kind export kubeconfig --name "$cluster" --kubeconfig "$KUBECONFIG"
    if is_of_this_image && nodes_are_ready 60s; then
      connect_pods # a restarted node has lost its routes
      return
    fi
    note 'its nodes are of another image or not ready: making it anew'
    kind delete cluster --name "$cluster" --kubeconfig "$KUBECONFIG" # what its nodes remember of the kernel stays
  fi
  # One folder for all nodes: they share one kernel, so they share the journal of its keys.
  mkdir -p "$cluster_state/node-state"
  cluster_config >"$cluster_state/kind.yaml"
  kind create cluster --name "$cluster" --image "$(node_image)" --config "$cluster_state/kind.yaml" --kubeconfig "$KUBECONFIG"
  connect_pods
  nodes_are_ready 180s
}

cluster_down() {
  kind delete cluster --name "$cluster" --kubeconfig "$KUBECONFIG"
  as_root rm -rf "$cluster_state"
}

is_of_this_image() { [ "$(docker inspect -f '{{.Config.Image}}' "$cluster-control-plane")" = "$(node_image)" ]; }

nodes_are_ready() { kubectl wait --for=condition=Ready node --all --timeout="$1"; }

cluster_config() {
  local role
  cat <<YAML
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  disableDefaultCNI: $([ -n "${KIND_NODE_IMAGE:-}" ] && echo false || echo true)
nodes:
YAML
  for role in control-plane worker worker; do
    cat <<YAML
- role: $role
  extraMounts:
  - hostPath: "$cluster_state/node-state"
    containerPath: /var/lib/tunedweb
YAML
  done
}

# connect_pods: a bridge on each node and a route to every other node's pods. An official node image brings
# a network of its own.
connect_pods() {
  [ -z "${KIND_NODE_IMAGE:-}" ] || return 0
  local nodes node other
  mapfile -t nodes < <(kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}')
  for node in "${nodes[@]}"; do
    within 60 has_pod_range "$node"
    bridge_config "$(pod_range "$node")" | docker exec -i "$node" tee /etc/cni/net.d/10-bridge.conflist
  done
  for node in "${nodes[@]}"; do
    for other in "${nodes[@]}"; do
      [ "$other" = "$node" ] || docker exec "$node" ip route replace "$(pod_range "$other")" via "$(node_address "$other")"
    done
  done
}

pod_range() { kubectl get node "$1" -o jsonpath='{.spec.podCIDR}'; }

has_pod_range() { [ -n "$(pod_range "$1")" ]; }

node_address() { kubectl get node "$1" -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}'; }

bridge_config() {
  cat <<JSON
{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "$1"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
JSON
}
