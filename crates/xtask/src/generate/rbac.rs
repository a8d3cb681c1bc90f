//! What the hub may do: on the management cluster, on workload clusters it only watches, and on those it corrects.

use super::{ACCOUNT, NAMESPACE};

const READ: &[&str] = &["get", "list", "watch"];

/// The built-in kinds that charts declare, by API group, without those of RBAC.
const KINDS: [(&str, &[&str]); 16] = [
    (
        "",
        &[
            "configmaps",
            "endpoints",
            "limitranges",
            "namespaces",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "replicationcontrollers",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
            "services",
        ],
    ),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("certificates.k8s.io", &["certificatesigningrequests"]),
    ("coordination.k8s.io", &["leases"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
    ("networking.k8s.io", &["ingressclasses", "ingresses", "networkpolicies"]),
    ("node.k8s.io", &["runtimeclasses"]),
    ("policy", &["poddisruptionbudgets"]),
    ("resource.k8s.io", &["deviceclasses", "resourceclaimtemplates"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
    ("storage.k8s.io", &["csidrivers", "storageclasses", "volumeattributesclasses"]),
];
/// Kinds that admission policies do not apply to, so that nothing could keep a dry-run right from being used for real.
const ADMISSION: (&str, &[&str]) = (
    "admissionregistration.k8s.io",
    &[
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    ],
);
const RBAC: (&str, &[&str]) = ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]);

/// Groups of which nothing is ever deleted (see `holdfast_engine::recreate`).
const KEPT: [&str; 6] = [
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "resource.k8s.io",
];
/// Groups of which only these kinds may be deleted.
const REPLACED: [(&str, &[&str]); 2] = [
    (
        "",
        &[
            "configmaps",
            "endpoints",
            "limitranges",
            "podtemplates",
            "replicationcontrollers",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
            "services",
        ],
    ),
    ("batch", &["cronjobs"]),
];

/// The files, and the kustomization of what belongs to the management cluster.
pub fn files() -> Vec<(String, String)> {
    vec![
        ("rbac/management.yaml".to_owned(), management()),
        ("rbac/workload-warn.yaml".to_owned(), workload_warn()),
        ("rbac/workload-correct.yaml".to_owned(), workload_correct()),
        ("rbac/workload-recreate.yaml".to_owned(), workload_recreate()),
        (
            "rbac/kustomization.yaml".to_owned(),
            "# The other files of this folder are for workload clusters.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- management.yaml\n"
                .to_owned(),
        ),
    ]
}

fn management() -> String {
    let mut page = Page::default();
    page.comment(
        "What the hub may do on the management cluster. A hub with --namespace needs no more than a RoleBinding of this ClusterRole in that
namespace, in place of the ClusterRoleBinding; ClusterDriftPolicies are not in force then.",
    );
    page.role(
        "holdfast-hub",
        &[
            Rule::new("Which clusters there are, and whether they may be touched.", "cluster.x-k8s.io", &["clusters"], READ),
            Rule::new(
                "Their kubeconfigs. RBAC cannot narrow this down to labelled Secrets; the hub asks for no others.",
                "",
                &["secrets"],
                READ,
            ),
            Rule::new(
                "What a restart must not forget, sealed: Secrets holdfast-state-… beside the reports. RBAC cannot narrow down what is created.",
                "",
                &["secrets"],
                &["create", "update", "delete"],
            ),
            Rule::new("What is to be done.", "holdfast.dev", &["clusterdriftpolicies", "driftpolicies"], READ),
            Rule::new(
                "Whether a policy is in force.",
                "holdfast.dev",
                &["clusterdriftpolicies/status", "driftpolicies/status"],
                &["patch"],
            ),
            Rule::new("Labels of namespaces, which ClusterDriftPolicies select by.", "", &["namespaces"], READ),
            Rule::new("What was found.", "holdfast.dev", &["driftreports"], &["get", "list", "watch", "create", "patch", "delete"]),
            Rule::new("", "holdfast.dev", &["driftreports/status"], &["update"]),
            Rule::new("What happened.", "events.k8s.io", &["events"], &["create", "patch"]),
        ],
    );
    page.binding("holdfast-hub");
    page.comment("Which of several hubs works, and since when nothing was heard of it. In the namespace of the hub, and in no other.");
    page.document(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: holdfast-lease
  namespace: {NAMESPACE}
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [holdfast]
  verbs: [get, update]
"
    ));
    page.document(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: holdfast-lease
  namespace: {NAMESPACE}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: holdfast-lease
subjects:
- kind: ServiceAccount
  name: {ACCOUNT}
  namespace: {NAMESPACE}
"
    ));
    page.text
}

fn workload_warn() -> String {
    let mut page = Page::default();
    page.comment(
        "What the hub may do on a workload cluster where its policies say `mode: Warn`.

Judging exactly takes a dry-run of a server-side apply, and the API server demands for one what it demands for the real thing: `patch`,
and `create` where the object is missing. RBAC cannot tell the two apart, admission can: the policy below refuses everything of this
account that is not a dry-run, so the cluster itself guarantees that Warn writes nothing. It needs Kubernetes 1.30.

Without the ClusterRole holdfast-dry-run and the policy the hub judges by comparing fields itself, and its reports say where that is less
exact. Roles and bindings are always judged so here: to dry-run one, an account must hold every right that it grants.",
    );
    page.account();
    page.read_role();
    page.custom_role("get, list, watch; patch and create too if they shall be judged exactly");
    let dry_run = KINDS.iter().map(|(group, kinds)| Rule::new("", group, kinds, &["patch", "create"])).collect::<Vec<_>>();
    page.role("holdfast-dry-run", &dry_run);
    page.binding("holdfast-dry-run");
    page.document(&format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: holdfast-writes-nothing
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [\"*\"]
      apiVersions: [\"*\"]
      resources: [\"*/*\"]
      operations: [CREATE, UPDATE, DELETE, CONNECT]
  matchConditions:
  - name: is-holdfast
    expression: request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{ACCOUNT}'
  validations:
  - expression: has(request.dryRun) && request.dryRun
    message: Holdfast watches this cluster and writes nothing to it
    reason: Forbidden
"
    ));
    page.document(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: holdfast-writes-nothing
spec:
  policyName: holdfast-writes-nothing
  validationActions: [Deny]
",
    );
    page.text
}

fn workload_correct() -> String {
    let mut page = Page::default();
    page.comment(
        "What the hub may do on a workload cluster where its policies say `mode: Correct`.

Corrections are patches, missing objects are created; nothing is deleted and no status is written. Take out a kind, and its drift is
reported as refused with the reason Forbidden, while everything else goes on.",
    );
    page.account();
    page.read_role();
    page.custom_role("get, list, watch, patch, create");
    let write =
        KINDS.iter().chain([&ADMISSION]).map(|(group, kinds)| Rule::new("", group, kinds, &["patch", "create"])).collect::<Vec<_>>();
    page.role("holdfast-correct", &write);
    page.binding("holdfast-correct");
    page.comment(
        "Putting a Role or a binding back grants rights, and the API server lets only those grant a right who hold it, or who may `escalate`
and `bind`. Whoever may do that can make himself an administrator: leave these two out to have drift of RBAC objects reported only.",
    );
    page.role(
        "holdfast-correct-rbac",
        &[Rule::new("", RBAC.0, RBAC.1, &["patch", "create"]), Rule::new("", RBAC.0, &["clusterroles", "roles"], &["escalate", "bind"])],
    );
    page.binding("holdfast-correct-rbac");
    page.text
}

fn workload_recreate() -> String {
    let mut page = Page::default();
    page.comment(
        "What the hub may do beyond workload-correct.yaml where a policy says `recreate: OnImmutable`: delete an object of which a field cannot be
changed, to create it again. Without it such drift is reported as refused.",
    );
    let replace = KINDS.iter().chain([&ADMISSION, &RBAC]).filter_map(|(group, kinds)| {
        let kinds: &[&str] = REPLACED.iter().find(|(replaced, _)| replaced == group).map_or(kinds, |(_, kinds)| *kinds);
        KEPT.iter().all(|kept| kept != group).then(|| Rule::new("", group, kinds, &["delete"]))
    });
    page.role("holdfast-recreate", &replace.collect::<Vec<_>>());
    page.binding("holdfast-recreate");
    page.text
}

struct Rule<'a> {
    why: &'a str,
    group: &'a str,
    resources: &'a [&'a str],
    verbs: &'a [&'a str],
}

impl<'a> Rule<'a> {
    const fn new(why: &'a str, group: &'a str, resources: &'a [&'a str], verbs: &'a [&'a str]) -> Self {
        Self { why, group, resources, verbs }
    }
}

/// A YAML file of several documents.
#[derive(Default)]
struct Page {
    text: String,
    /// Comments of the next document.
    notes: String,
}

impl Page {
    fn comment(&mut self, text: &str) {
        for line in text.lines() {
            self.notes.push_str(format!("# {line}").trim_end());
            self.notes.push('\n');
        }
    }

    fn document(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push_str("---\n");
        }
        self.text.push_str(&std::mem::take(&mut self.notes));
        self.text.push_str(text);
    }

    fn role(&mut self, name: &str, rules: &[Rule<'_>]) {
        let mut lines = vec![format!("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}\nrules:\n")];
        let list = |items: &[&str]| items.iter().map(|item| if item.is_empty() { "\"\"" } else { item }).collect::<Vec<_>>().join(", ");
        for rule in rules {
            if !rule.why.is_empty() {
                lines.push(format!("# {}\n", rule.why));
            }
            let (group, resources, verbs) = (list(&[rule.group]), list(rule.resources), list(rule.verbs));
            lines.push(format!("- apiGroups: [{group}]\n  resources: [{resources}]\n  verbs: [{verbs}]\n"));
        }
        self.document(&lines.concat());
    }

    fn binding(&mut self, role: &str) {
        self.document(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {role}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {role}
subjects:
- kind: ServiceAccount
  name: {ACCOUNT}
  namespace: {NAMESPACE}
"
        ));
    }

    fn account(&mut self) {
        self.document(&format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n"));
        self.document(&format!("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {ACCOUNT}\n  namespace: {NAMESPACE}\n"));
    }

    /// Looking at what charts declare, and at what says who else may write it.
    fn read_role(&mut self) {
        let mut rules = Vec::new();
        for (group, kinds) in KINDS.iter().chain([&ADMISSION, &RBAC]) {
            let why = match *group {
                "" => "Secrets hold the release records, and charts declare Secrets. Namespaces tell the identity of the cluster.",
                "apiextensions.k8s.io" => "Which custom resources there are.",
                "autoscaling" => "Which fields an autoscaler owns.",
                _ => "",
            };
            rules.push(Rule::new(why, group, kinds, READ));
        }
        rules.push(Rule::new("Further autoscalers.", "autoscaling.k8s.io", &["verticalpodautoscalers"], READ));
        rules.push(Rule::new("", "keda.sh", &["scaledobjects"], READ));
        rules.push(Rule::new(
            "Who may have rewritten what leaves no trace; webhooks are among the kinds above.",
            ADMISSION.0,
            &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
            READ,
        ));
        self.role("holdfast-read", &rules);
        self.binding("holdfast-read");
    }

    fn custom_role(&mut self, verbs: &str) {
        self.comment(&format!("Custom resources: give a rule for each API group that your charts use, with the verbs {verbs}."));
        self.document(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: holdfast-custom-resources\nrules: []\n",
        );
        self.binding("holdfast-custom-resources");
    }
}
