//! Webhooks and policies that may rewrite objects of one cluster, as far as their rules tell: what admission changes has no owner, so
//! these are all that can be named. Pure: fed by their watches. Nothing is decided by it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use holdfast_engine::object::{Gvk, Scope};
use holdfast_fleet::{
    call::Endpoint,
    discovery::{Catalog, Lookup},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

const GROUP: &str = "admissionregistration.k8s.io";
/// Kinds on which no webhook and no policy acts (`kubernetes/pkg/kubeapiserver/admission/exclusion`).
const EXEMPT: [&str; 6] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];
/// The label by which the API server names each namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// A kind of object that tells who rewrites others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AdmissionKind {
    /// `MutatingWebhookConfiguration`.
    Webhooks,
    /// `MutatingAdmissionPolicy`.
    Policies,
    /// `MutatingAdmissionPolicyBinding`, without which a policy does nothing.
    Bindings,
}

impl AdmissionKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Webhooks, Self::Policies, Self::Bindings];

    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Webhooks => ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            Self::Policies => ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
            Self::Bindings => ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
        }
    }

    /// Where a cluster serves it; `None` where it does not, or nobody can tell.
    pub fn place(self, catalog: &Catalog) -> Option<Endpoint> {
        let (kind, plural) = self.names();
        let is_served = |version: &&str| {
            let gvk = Gvk { group: GROUP.to_owned(), version: (*version).to_owned(), kind: kind.to_owned() };
            matches!(catalog.lookup(&gvk), Lookup::Served(_))
        };
        let version = ["v1", "v1beta1", "v1alpha1"].into_iter().find(is_served)?;
        Endpoint::new(GROUP, version, plural).ok()
    }
}

/// One of them as its watch shows it.
#[derive(Clone, Debug)]
pub struct AdmissionSight {
    kind: AdmissionKind,
    name: Box<str>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// Who rewrites, each with the calls it sees.
    Mutators(Vec<Mutator>),
    /// The policy that is put in force, and for which calls.
    Binding(String, Matches),
}

/// One webhook, or one policy.
#[derive(Clone, Debug)]
struct Mutator {
    title: String,
    matches: Matches,
}

/// The object that somebody may have rewritten.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its kind.
    pub gvk: &'a Gvk,
    /// Its plural.
    pub plural: &'a str,
    /// Whether it lives in a namespace.
    pub scope: Scope,
    /// Its namespace.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// The labels it has, and those it is declared with.
    pub labels: [Option<&'a Map<String, Value>>; 2],
}

/// All that is known of one cluster. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    mutators: BTreeMap<(AdmissionKind, Box<str>), Arc<[Mutator]>>,
    bindings: BTreeMap<Box<str>, Arc<(String, Matches)>>,
    listed: BTreeMap<AdmissionKind, BTreeSet<Box<str>>>,
}

impl Admission {
    /// A list begins.
    pub fn reset(&mut self, kind: AdmissionKind) {
        self.listed.insert(kind, BTreeSet::new());
    }

    /// One was listed or changed.
    pub fn put(&mut self, sight: AdmissionSight) {
        let AdmissionSight { kind, name, content } = sight;
        if let Some(listed) = self.listed.get_mut(&kind) {
            listed.insert(name.clone());
        }
        match content {
            Content::Mutators(mutators) => _ = self.mutators.insert((kind, name), mutators.into()),
            Content::Binding(policy, matches) => _ = self.bindings.insert(name, Arc::new((policy, matches))),
        }
    }

    /// One is gone.
    pub fn remove(&mut self, sight: &AdmissionSight) {
        match sight.kind {
            AdmissionKind::Bindings => _ = self.bindings.remove(&sight.name),
            kind => _ = self.mutators.remove(&(kind, sight.name.clone())),
        }
    }

    /// The list is complete: what it does not hold is gone.
    pub fn list_complete(&mut self, kind: AdmissionKind) {
        let Some(listed) = self.listed.remove(&kind) else { return };
        match kind {
            AdmissionKind::Bindings => self.bindings.retain(|name, _| listed.contains(name)),
            kind => self.mutators.retain(|(of, name), _| *of != kind || listed.contains(name)),
        }
    }

    /// Whether there is a policy that a binding could put in force.
    pub fn has_policies(&self) -> bool {
        self.mutators.keys().any(|(kind, _)| *kind == AdmissionKind::Policies)
    }

    /// A kind is watched no more.
    pub fn forget(&mut self, kind: AdmissionKind) {
        self.reset(kind);
        self.list_complete(kind);
    }

    /// Who may rewrite an object when it is created or changed: `webhook NAME/CONFIGURATION`, `policy NAME`. Conditions in CEL are not
    /// evaluated, and of a namespace only its name is known.
    pub fn suspects(&self, subject: &Subject<'_>) -> Vec<String> {
        if subject.gvk.group == GROUP && EXEMPT.contains(&subject.gvk.kind.as_str()) {
            return Vec::new();
        }
        let in_force = |kind: AdmissionKind, name: &str| {
            kind == AdmissionKind::Webhooks || self.bindings.values().any(|binding| binding.0 == name && binding.1.may_see(subject, true))
        };
        self.mutators
            .iter()
            .flat_map(|((kind, name), mutators)| mutators.iter().map(move |mutator| (*kind, name, mutator)))
            .filter(|(kind, name, mutator)| mutator.matches.may_see(subject, false) && in_force(*kind, name))
            .map(|(_, _, mutator)| mutator.title.clone())
            .collect()
    }
}

impl AdmissionSight {
    /// Reads one; `None` for what has no name. One whose rules cannot be read names nobody.
    pub fn read(kind: AdmissionKind, text: &str) -> Option<Self> {
        let Object::<Empty> { metadata: Metadata { name }, .. } = serde_json::from_str(text).ok()?;
        let content = match kind {
            AdmissionKind::Webhooks => {
                let webhooks = serde_json::from_str::<Configuration>(text).map(|read| read.webhooks).unwrap_or_default();
                Content::Mutators(webhooks.into_iter().map(|webhook| webhook.mutator(&name)).collect())
            }
            AdmissionKind::Policies => {
                let spec = serde_json::from_str::<Object<PolicySpec>>(text).ok().and_then(|policy| policy.spec);
                let matches = spec.and_then(|spec| spec.match_constraints);
                let title = format!("policy {name}");
                Content::Mutators(matches.into_iter().map(|matches| Mutator { title: title.clone(), matches }).collect())
            }
            AdmissionKind::Bindings => {
                let spec = serde_json::from_str::<Object<BindingSpec>>(text).ok().and_then(|binding| binding.spec)?;
                Content::Binding(spec.policy_name, spec.match_resources.unwrap_or_default())
            }
        };
        Some(Self { kind, name: name.into(), content })
    }
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct Empty {}

#[derive(Deserialize)]
struct Object<T> {
    metadata: Metadata,
    #[serde(default = "Option::default")]
    spec: Option<T>,
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(default, deserialize_with = "or_default")]
    webhooks: Vec<Webhook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    rules: Vec<Rule>,
    #[serde(default)]
    match_policy: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    namespace_selector: Selector,
    #[serde(default, deserialize_with = "or_default")]
    object_selector: Selector,
}

impl Webhook {
    fn mutator(self, configuration: &str) -> Mutator {
        Mutator {
            title: format!("webhook {}/{configuration}", self.name),
            matches: Matches {
                resource_rules: self.rules,
                exclude_resource_rules: Vec::new(),
                match_policy: self.match_policy,
                namespace_selector: self.namespace_selector,
                object_selector: self.object_selector,
            },
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicySpec {
    #[serde(default)]
    match_constraints: Option<Matches>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingSpec {
    policy_name: String,
    #[serde(default)]
    match_resources: Option<Matches>,
}

/// Which calls are seen.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Matches {
    #[serde(default, deserialize_with = "or_default")]
    resource_rules: Vec<Rule>,
    #[serde(default, deserialize_with = "or_default")]
    exclude_resource_rules: Vec<Rule>,
    #[serde(default)]
    match_policy: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    namespace_selector: Selector,
    #[serde(default, deserialize_with = "or_default")]
    object_selector: Selector,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default, deserialize_with = "or_default")]
    api_groups: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    api_versions: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    resources: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    operations: Vec<String>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    resource_names: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    #[serde(default, deserialize_with = "or_default")]
    match_labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_default")]
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Deserialize)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(default, deserialize_with = "or_default")]
    values: Vec<String>,
}

/// The server stores what is empty as null in places.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Matches {
    /// Whether a creation or change of the object may be seen. `without_rules` is what holds where no rule is given.
    fn may_see(&self, subject: &Subject<'_>, without_rules: bool) -> bool {
        let is_exact = self.match_policy.as_deref() == Some("Exact");
        let is_meant = if self.resource_rules.is_empty() {
            without_rules
        } else {
            self.resource_rules.iter().any(|rule| rule.means(subject, is_exact))
        };
        is_meant
            // What is left out at another version or for one operation may be seen all the same.
            && !self.exclude_resource_rules.iter().any(|rule| rule.has_both_operations() && rule.means(subject, true))
            && self.namespace_selector.may_select(|key| namespace_label(subject, key))
            && (subject.labels.iter().any(|labels| self.object_selector.may_select(|key| object_label(*labels, key))))
    }
}

impl Rule {
    fn means(&self, subject: &Subject<'_>, is_exact: bool) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|entry| entry == "*" || entry == wanted);
        let is_scope = match self.scope.as_deref() {
            None | Some("*") => true,
            Some("Namespaced") => subject.scope == Scope::Namespaced,
            Some(_) => subject.scope == Scope::Cluster,
        };
        let is_resource = self.resources.iter().any(|entry| {
            let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
            (resource == "*" || resource == subject.plural) && matches!(subresource, "" | "*")
        });
        let acts = ["CREATE", "UPDATE"].iter().any(|operation| has(&self.operations, operation));
        let is_named = self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == subject.name);
        // By default the server converts a call to the version that a rule names.
        let is_version = !is_exact || has(&self.api_versions, &subject.gvk.version);
        has(&self.api_groups, &subject.gvk.group) && is_version && is_resource && is_scope && acts && is_named
    }

    fn has_both_operations(&self) -> bool {
        ["CREATE", "UPDATE"].iter().all(|operation| self.operations.iter().any(|entry| entry == "*" || entry == operation))
    }
}

/// What is known of a label: nothing, or its value, or that there is none.
enum Label<'a> {
    Unknown,
    Known(Option<&'a str>),
}

impl Selector {
    /// Whether nothing that is known rules the selection out.
    fn may_select<'a>(&self, label: impl Fn(&str) -> Label<'a>) -> bool {
        let by_labels = self.match_labels.iter().all(|(key, value)| match label(key) {
            Label::Unknown => true,
            Label::Known(found) => found == Some(value.as_str()),
        });
        by_labels
            && self.match_expressions.iter().all(|requirement| {
                let Label::Known(found) = label(&requirement.key) else { return true };
                let is_listed = found.is_some_and(|found| requirement.values.iter().any(|value| value == found));
                match requirement.operator.as_str() {
                    "In" => is_listed,
                    "NotIn" => !is_listed,
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => true,
                }
            })
    }
}

fn object_label<'a>(labels: Option<&'a Map<String, Value>>, key: &str) -> Label<'a> {
    Label::Known(labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
}

fn namespace_label<'a>(subject: &Subject<'a>, key: &str) -> Label<'a> {
    let is_namespace = subject.gvk.is("", "Namespace");
    match subject.namespace {
        _ if is_namespace && key == NAMESPACE_NAME => Label::Known(Some(subject.name)),
        Some(namespace) if key == NAMESPACE_NAME => Label::Known(Some(namespace)),
        _ => Label::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sight(kind: AdmissionKind, object: &Value) -> AdmissionSight {
        AdmissionSight::read(kind, &object.to_string()).unwrap()
    }

    fn rule(changes: &Value) -> Value {
        let mut rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE", "UPDATE"], "scope": "*"});
        rule.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        rule
    }

    fn webhook(hook: &Value) -> AdmissionSight {
        let mut full = json!({"name": "w.x", "clientConfig": {"caBundle": "Q0E="}, "namespaceSelector": {}, "objectSelector": {}});
        full.as_object_mut().unwrap().extend(hook.as_object().unwrap().clone());
        sight(AdmissionKind::Webhooks, &json!({"metadata": {"name": "conf"}, "webhooks": [full]}))
    }

    fn ask(admission: &Admission, api_version: &str, kind: &str, plural: &str) -> Vec<String> {
        let gvk = Gvk::new(api_version, kind);
        let is_cluster = matches!(kind, "ClusterRole" | "Namespace" | "MutatingWebhookConfiguration");
        let (scope, namespace) = if is_cluster { (Scope::Cluster, None) } else { (Scope::Namespaced, Some("t")) };
        let labels = [json!({"app": "web"}), json!({"declared": "yes"})];
        let labels = [labels[0].as_object(), labels[1].as_object()];
        admission.suspects(&Subject { gvk: &gvk, plural, scope, namespace, name: "web", labels })
    }

    #[test]
    fn rules_say_which_objects_a_webhook_sees() {
        let deployment = ("apps/v1", "Deployment", "deployments");
        for (hook, object, sees) in [
            (json!({"rules": [rule(&json!({}))]}), deployment, true),
            (json!({"rules": []}), deployment, false),
            (json!({"rules": null}), deployment, false),
            (json!({"rules": [rule(&json!({}))]}), ("apps/v1", "StatefulSet", "statefulsets"), false),
            (json!({"rules": [rule(&json!({}))]}), ("x.example/v1", "Deployment", "deployments"), false),
            (json!({"rules": [rule(&json!({"resources": ["*"]}))]}), deployment, true),
            (json!({"rules": [rule(&json!({"resources": ["*/*"]}))]}), deployment, true),
            (json!({"rules": [rule(&json!({"resources": ["deployments/*"]}))]}), deployment, true),
            (json!({"rules": [rule(&json!({"resources": ["deployments/status"]}))]}), deployment, false),
            (json!({"rules": [rule(&json!({"apiGroups": ["*"]}))]}), deployment, true),
            (json!({"rules": [rule(&json!({"operations": ["UPDATE"]}))]}), deployment, true),
            (json!({"rules": [rule(&json!({"operations": ["*"]}))]}), deployment, true),
            (json!({"rules": [rule(&json!({"operations": ["DELETE", "CONNECT"]}))]}), deployment, false),
            (json!({"rules": [rule(&json!({"apiVersions": ["v1beta1"]}))]}), deployment, true),
            (json!({"rules": [rule(&json!({"apiVersions": ["v1beta1"]}))], "matchPolicy": "Exact"}), deployment, false),
            (json!({"rules": [rule(&json!({"scope": "Cluster"}))]}), deployment, false),
            (json!({"rules": [rule(&json!({"scope": "Namespaced"}))]}), deployment, true),
            (
                json!({"rules": [rule(&json!({"apiGroups": ["*"], "resources": ["*"], "scope": "Namespaced"}))]}),
                ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles"),
                false,
            ),
            (
                json!({"rules": [rule(&json!({"apiGroups": ["*"], "resources": ["*"]}))]}),
                ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
                false,
            ),
        ] {
            let mut admission = Admission::default();
            admission.put(webhook(&hook));
            let expected: &[&str] = if sees { &["webhook w.x/conf"] } else { &[] };
            assert_eq!(ask(&admission, object.0, object.1, object.2), expected, "{hook} {object:?}");
        }
    }

    #[test]
    fn selectors_rule_out_only_what_is_known() {
        let named =
            |operator: &str, values: Value| json!({"matchExpressions": [{"key": NAMESPACE_NAME, "operator": operator, "values": values}]});
        let with = |namespaces: Value, objects: Value| json!({"rules": [rule(&json!({}))], "namespaceSelector": namespaces, "objectSelector": objects});
        for (hook, sees) in [
            (with(named("In", json!(["t"])), json!({})), true),
            (with(named("In", json!(["other"])), json!(null)), false),
            (with(named("NotIn", json!(["t"])), json!({})), false),
            (with(named("Exists", json!(null)), json!({})), true),
            (with(named("DoesNotExist", json!(null)), json!({})), false),
            (with(json!({"matchLabels": {NAMESPACE_NAME: "other"}}), json!({})), false),
            (with(json!({"matchLabels": {"istio-injection": "enabled"}}), json!({})), true),
            (with(json!({}), json!({"matchLabels": {"app": "web"}})), true),
            (with(json!({}), json!({"matchLabels": {"declared": "yes"}})), true),
            (with(json!({}), json!({"matchLabels": {"app": "other"}})), false),
            (with(json!({}), json!({"matchExpressions": [{"key": "declared", "operator": "Exists"}]})), true),
            (with(json!({}), json!({"matchExpressions": [{"key": "nowhere", "operator": "Exists"}]})), false),
        ] {
            let mut admission = Admission::default();
            admission.put(webhook(&hook));
            assert_eq!(!ask(&admission, "apps/v1", "Deployment", "deployments").is_empty(), sees, "{hook}");
        }
    }

    #[test]
    fn a_policy_acts_where_a_binding_puts_it_in_force() {
        let policy = |constraints: Value| {
            sight(AdmissionKind::Policies, &json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints}}))
        };
        let binding = |name: &str, policy: &str, matches: Value| {
            sight(AdmissionKind::Bindings, &json!({"metadata": {"name": name}, "spec": {"policyName": policy, "matchResources": matches}}))
        };
        let asked = |admission: &Admission| ask(admission, "apps/v1", "Deployment", "deployments").join(" ");
        let mut admission = Admission::default();
        admission.put(policy(json!({"resourceRules": [rule(&json!({}))]})));
        assert_eq!(asked(&admission), "", "not in force");
        admission.put(binding("a", "other", json!(null)));
        admission.put(binding("b", "p", json!({"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "other"}}})));
        assert_eq!(asked(&admission), "", "in force elsewhere");
        admission.put(binding("c", "p", json!(null)));
        assert_eq!(asked(&admission), "policy p");
        admission.put(policy(json!({"resourceRules": [rule(&json!({"resourceNames": ["api"]}))]})));
        assert_eq!(asked(&admission), "", "of another name");
        let all = rule(&json!({"apiGroups": ["*"], "resources": ["*"]}));
        admission.put(policy(json!({"resourceRules": [all], "excludeResourceRules": [rule(&json!({}))]})));
        assert_eq!(asked(&admission), "", "left out");
        admission.put(policy(json!({"resourceRules": [all], "excludeResourceRules": [rule(&json!({"operations": ["CREATE"]}))]})));
        assert_eq!(asked(&admission), "policy p", "left out on creation only");
        admission.remove(&binding("c", "p", json!(null)));
        assert_eq!(asked(&admission), "");
    }

    #[test]
    fn lists_forget_and_kinds_are_apart() {
        let mut admission = Admission::default();
        let hook = webhook(&json!({"rules": [rule(&json!({}))]}));
        let asked = |admission: &Admission| ask(admission, "apps/v1", "Deployment", "deployments").len();
        admission.put(hook.clone());
        admission.reset(AdmissionKind::Policies);
        admission.list_complete(AdmissionKind::Policies);
        assert_eq!(asked(&admission), 1);
        admission.reset(AdmissionKind::Webhooks);
        assert_eq!(asked(&admission), 1, "an incomplete list proves nothing");
        admission.put(hook);
        admission.list_complete(AdmissionKind::Webhooks);
        assert_eq!(asked(&admission), 1);
        admission.forget(AdmissionKind::Webhooks);
        assert_eq!(asked(&admission), 0);
    }
}
