// Pins the Cluster API whose CustomResourceDefinitions the tests install; only the YAML under core/config/crd/bases is read.
module holdfast.dev/e2e/controlplane/cluster-api

go 1.26.0

require sigs.k8s.io/cluster-api v1.14.2
