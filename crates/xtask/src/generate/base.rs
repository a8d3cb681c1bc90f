//! The hub on the management cluster, as a kustomize base.

use super::{ACCOUNT, NAMESPACE};

/// Metrics and probes.
const PORT: u16 = 8080;

/// The files of the base.
pub fn files() -> Vec<(String, String)> {
    let labels = "app.kubernetes.io/name: holdfast";
    let version = env!("CARGO_PKG_VERSION");
    [
        (
            "kustomization.yaml",
            format!(
                "# kubectl apply -k manifests/base
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: {NAMESPACE}
resources:
- ../crds
- ../rbac
- namespace.yaml
- service-account.yaml
- deployment.yaml
- service.yaml
images:
- name: holdfast
  newTag: {version}
"
            ),
        ),
        (
            "namespace.yaml",
            format!(
                "apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"
            ),
        ),
        ("service-account.yaml", format!("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {ACCOUNT}\n  namespace: {NAMESPACE}\n")),
        (
            "service.yaml",
            format!(
                "apiVersion: v1
kind: Service
metadata:
  name: holdfast
  namespace: {NAMESPACE}
  labels:
    {labels}
spec:
  selector:
    {labels}
  ports:
  - name: metrics
    port: {PORT}
    targetPort: metrics
"
            ),
        ),
        ("deployment.yaml", deployment(labels, version)),
    ]
    .map(|(file, text)| (format!("base/{file}"), text))
    .into()
}

fn deployment(labels: &str, version: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata:
  name: holdfast
  namespace: {NAMESPACE}
  labels:
    {labels}
spec:
  # One works, the other takes over within half a minute when it dies, and at once when it ends.
  replicas: 2
  selector:
    matchLabels:
      {labels}
  template:
    metadata:
      labels:
        {labels}
    spec:
      serviceAccountName: {ACCOUNT}
      terminationGracePeriodSeconds: 10
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels:
            {labels}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile:
          type: RuntimeDefault
      containers:
      - name: hub
        image: holdfast:{version}
        args: [hub, --leader-elect, \"--listen=0.0.0.0:{PORT}\"]
        env:
        - name: HOLDFAST_ID
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        ports:
        - name: metrics
          containerPort: {PORT}
        livenessProbe:
          httpGet:
            path: /healthz
            port: metrics
          periodSeconds: 10
          failureThreshold: 3
        readinessProbe:
          httpGet:
            path: /readyz
            port: metrics
          periodSeconds: 5
        resources:
          requests:
            cpu: 50m
            memory: 64Mi
          limits:
            # For about 1,000 clusters of 1,000 objects; less does for fewer.
            memory: 1Gi
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
"
    )
}
