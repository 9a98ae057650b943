# shellcheck shell=bash
# Everything that the entry points need, in the order in which the parts build on each other.

here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=e2e/lib/common.sh
. "$here/common.sh"
# shellcheck source=e2e/lib/packages.sh
. "$here/packages.sh"
# shellcheck source=e2e/lib/docker.sh
. "$here/docker.sh"
# shellcheck source=e2e/lib/tools.sh
. "$here/tools.sh"
# shellcheck source=e2e/lib/node-image.sh
. "$here/node-image.sh"
# shellcheck source=e2e/lib/cluster.sh
. "$here/cluster.sh"
# shellcheck source=e2e/lib/images.sh
. "$here/images.sh"
# shellcheck source=e2e/lib/release.sh
. "$here/release.sh"

# make_cluster: from a machine with three toolchains to a cluster that runs this checkout.
make_cluster() {
  toolchains
  step 'Debian packages' install_packages
  step 'Docker' use_docker
  step 'Cluster tools from their Go modules' build_tools
  step 'Node image' build_node_image
  step 'Cluster of three nodes' cluster_up
  step 'Our programs' build_programs
  step 'Our images, into the nodes' build_images
  step 'Chart' install_chart
}
