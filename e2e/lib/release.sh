# shellcheck shell=bash
# The chart in the cluster, with the images built here.

install_chart() {
  helm upgrade --install tunedweb "$root/charts/tunedweb" --namespace tunedweb-system --create-namespace \
    --values "$TUNEDWEB_VALUES" --wait --timeout 3m
}
