#!/usr/bin/env bash
# Builds the pinned control plane (kube-apiserver, kube-controller-manager, kubectl, etcd, helm 3 and 4) and copies the
# Cluster API CRDs into target/controlplane. Does nothing when what is there was built from these pins.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../target/controlplane}
mkdir -p "$out"
out=$(cd "$out" && pwd)
stamp=$(cat "$here"/build.sh "$here"/*/go.mod "$here"/*/go.sum | sha256sum | cut -c1-16)
if [ "$(cat "$out/stamp" 2>/dev/null || true)" = "$stamp" ]; then
  exit 0
fi
rm -f "$out/stamp"
started=$SECONDS
total=5
step=0
say() { step=$((step + 1)); printf 'controlplane %d/%d  %4ds  %s\n' "$step" "$total" $((SECONDS - started)) "$1"; }

# version MODULE: the version that go.mod of the current folder pins.
version() { go list -m -f '{{.Version}}' "$1"; }

# A repeat of `go build` with nothing changed costs seconds; CGO is off so that the programs need nothing from the machine.
export CGO_ENABLED=0 GOFLAGS=-trimpath

cd "$here/cluster-api"
say "Cluster API CRDs $(version sigs.k8s.io/cluster-api)"
go mod download sigs.k8s.io/cluster-api
crds=$(go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)/core/config/crd/bases
install -m 0644 "$crds/cluster.x-k8s.io_clusters.yaml" "$out/cluster-api-clusters.yaml"

cd "$here/etcd"
v=$(version go.etcd.io/etcd/server/v3)
say "etcd $v"
go build -ldflags "-s -w" -o "$out/etcd" go.etcd.io/etcd/server/v3

for major in 3 4; do
  cd "$here/helm$major"
  v=$(version "helm.sh/helm/v$major")
  say "helm $v"
  go build -ldflags "-s -w -X helm.sh/helm/v$major/internal/version.version=$v" -o "$out/helm$major" "helm.sh/helm/v$major/cmd/helm"
done

cd "$here/kubernetes"
v=$(version k8s.io/kubernetes)
say "kube-apiserver, kube-controller-manager, kubectl $v (the long one)"
minor=${v#v1.}
minor=${minor%%.*}
stamps=""
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  stamps="$stamps -X $package.gitVersion=$v -X $package.gitMajor=1 -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
done
for program in kube-apiserver kube-controller-manager kubectl; do
  go build -ldflags "-s -w $stamps" -o "$out/$program" "k8s.io/kubernetes/cmd/$program" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 5
    if [ $(((SECONDS - started) / 30)) != "${tick:-}" ]; then
      tick=$(((SECONDS - started) / 30))
      printf 'controlplane      %4ds  building %s\n' $((SECONDS - started)) "$program"
    fi
  done
  wait "$pid"
done
printf '%s\n' "$stamp" > "$out/stamp"
printf 'controlplane done %4ds  in target/controlplane\n' $((SECONDS - started))
