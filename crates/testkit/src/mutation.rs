//! Other values for the fields of an object: which fields a manager holds, and what somebody might put there instead.

use serde_json::{Map, Value, json};

/// A place in an object that a manager holds, or that something held lies below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path as reports print it, list items by their keys.
    pub path: String,
    /// Where that is in the object, as a JSON pointer. For what is missing, where it would be.
    pub pointer: String,
    /// The place is held as a whole: a single value, or a list or map that its schema calls atomic.
    pub is_leaf: bool,
    /// The place is an item of a list.
    pub is_item: bool,
    /// The fields that tell an item of this list from others, for a list of such items.
    pub keys: Vec<String>,
}

impl Place {
    /// Whether `other` is this place or lies below it.
    pub fn covers(&self, other: &Self) -> bool {
        other.path.strip_prefix(&self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The places that the applying `manager` of `answer` holds, looked up in `object`; parents come before what lies below them.
pub fn held_by(manager: &str, answer: &Value, object: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    let entries = answer.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let text = |entry: &Value, name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    for entry in entries.filter(|entry| text(entry, "manager") == manager && text(entry, "operation") == "Apply") {
        if let Some(fields) = entry.get("fieldsV1").and_then(Value::as_object) {
            walk(fields, Some(object), &mut (String::new(), String::new()), &mut places);
        }
    }
    places
}

fn walk(fields: &Map<String, Value>, object: Option<&Value>, at: &mut (String, String), places: &mut Vec<Place>) {
    for (name, below) in fields {
        let (Some((sort, rest)), Some(below)) = (name.split_once(':'), below.as_object()) else { continue };
        let (path, pointer) = at.clone();
        let (step, position, next) = if sort == "f" {
            (escape(rest), Some(escape(rest)), object.and_then(|object| object.get(rest)))
        } else {
            let items = object.and_then(Value::as_array);
            let index = items.and_then(|items| items.iter().position(|item| is_named(item, sort, rest)));
            let next = index.and_then(|index| items.and_then(|items| items.get(index)));
            (item_step(sort, rest), index.map(|index| index.to_string()), next)
        };
        // An item that is not there is at no place.
        let Some(position) = position else { continue };
        at.0 = format!("{path}/{step}");
        at.1 = format!("{pointer}/{position}");
        places.push(Place {
            path: at.0.clone(),
            pointer: at.1.clone(),
            is_leaf: below.is_empty(),
            is_item: sort != "f",
            keys: keys_below(below),
        });
        walk(below, next, at, places);
        *at = (path, pointer);
    }
}

fn keys_below(fields: &Map<String, Value>) -> Vec<String> {
    let key = fields.keys().find_map(|name| name.strip_prefix("k:"));
    let keys = key.and_then(|key| serde_json::from_str::<Map<String, Value>>(key).ok());
    keys.map(|keys| keys.into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

fn is_named(item: &Value, sort: &str, name: &str) -> bool {
    match (sort, serde_json::from_str::<Value>(name)) {
        ("k", Ok(Value::Object(keys))) => keys.iter().all(|(name, value)| item.get(name) == Some(value)),
        ("v", Ok(value)) => *item == value,
        _ => false,
    }
}

fn item_step(sort: &str, name: &str) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let quoted = |text: &str| {
        let escaped = |c: char| if matches!(c, ']' | ',' | '=' | '\\') { format!("\\{c}") } else { c.to_string() };
        escape(&text.chars().map(escaped).collect::<String>())
    };
    match (sort, serde_json::from_str::<Value>(name)) {
        ("k", Ok(Value::Object(keys))) => {
            let mut keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={}", quoted(&plain(value)))).collect();
            keys.sort_unstable();
            format!("[{}]", keys.join(","))
        }
        ("v", Ok(value)) => format!("[={}]", quoted(&plain(&value))),
        _ => format!("[{name}]"),
    }
}

/// A name as one step of a JSON pointer.
pub fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Values somebody might put in the place of the single value at `pointer`, of its own type, the likeliest to be taken first: which of
/// them are valid only the server knows.
pub fn others(pointer: &str, value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Number(number) => {
            let whole = number.as_i64();
            let near = whole.into_iter().flat_map(|number| [number.saturating_add(1), number.saturating_sub(1), 1, 0, 100, 65_000]);
            let near = near.filter(|other| Some(*other) != whole).map(Value::from);
            near.chain(number.as_f64().filter(|_| whole.is_none()).map(|number| json!(number + 0.5))).collect()
        }
        Value::String(text) => other_texts(pointer, text).into_iter().filter(|other| other != text).map(Value::String).collect(),
        _ => Vec::new(),
    }
}

/// The same for a number that may be a text and for a text that may be a number.
pub fn other_types(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(_) => vec![json!("http"), json!("50%"), json!("text")],
        Value::String(_) => vec![json!(80), json!(1)],
        _ => Vec::new(),
    }
}

fn other_texts(pointer: &str, text: &str) -> Vec<String> {
    let field = pointer.rsplit('/').find(|step| step.parse::<usize>().is_err()).unwrap_or_default();
    let mut others: Vec<String> = alternatives(field).iter().map(|text| (*text).to_owned()).collect();
    // Of a known list the one after the present value goes first, so that not everything becomes the same.
    if let Some(at) = others.iter().position(|other| other == text) {
        others.rotate_left(at);
    }
    others.extend(next_number(text));
    if text.ends_with('=') || field == "caBundle" || ["/data/", "/binaryData/"].iter().any(|map| pointer.starts_with(map)) {
        others.push("b3RoZXI=".to_owned());
    }
    others.extend([format!("{text}-x"), format!("x{text}"), format!("{text}/x"), format!("{text}x"), "x".to_owned(), "/x".to_owned()]);
    others
}

/// The text with its last number but units increased, and decreased: quantities, durations, percentages, addresses, versions.
fn next_number(text: &str) -> Vec<String> {
    let is_digit = |c: char| c.is_ascii_digit();
    // Of a network, the prefix stays and a middle part of the address moves.
    let (head, tail) = match text.split_once('/') {
        Some((address, prefix)) if text.starts_with(is_digit) => match address.rsplitn(3, '.').collect::<Vec<_>>().as_slice() {
            [last, middle, first] => (format!("{first}.{middle}"), format!(".{last}/{prefix}")),
            _ => return Vec::new(),
        },
        _ => {
            let end = text.rfind(is_digit).map_or(0, |at| at + 1);
            let (head, tail) = text.split_at(end);
            (head.to_owned(), tail.to_owned())
        }
    };
    let begin = head.rfind(|c: char| !is_digit(c)).map_or(0, |at| at + 1);
    let (head, number) = head.split_at(begin);
    let Ok(number) = number.parse::<u64>() else { return Vec::new() };
    [number.saturating_add(1), number.saturating_sub(1), number.saturating_mul(2)].map(|next| format!("{head}{next}{tail}")).to_vec()
}

/// What fields take that do not take any text. One name may stand for several fields; the server sorts them out.
const ALTERNATIVES: &[(&[&str], &[&str])] = &[
    (&["imagePullPolicy", "pullPolicy"], &["Always", "IfNotPresent", "Never"]),
    (&["protocol", "appProtocol"], &["TCP", "UDP", "SCTP"]),
    (&["scheme"], &["HTTP", "HTTPS"]),
    (
        &["type"],
        &[
            "RollingUpdate",
            "OnDelete",
            "Recreate",
            "ClusterIP",
            "NodePort",
            "LoadBalancer",
            "RuntimeDefault",
            "Unconfined",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "Utilization",
            "AverageValue",
            "Value",
            "Pods",
            "Percent",
            "Resource",
            "Reject",
            "Queue",
            "Container",
            "Pod",
            "PersistentVolumeClaim",
            "string",
            "integer",
            "boolean",
            "object",
            "User",
            "Group",
            "ServiceAccount",
        ],
    ),
    (&["pathType"], &["Prefix", "Exact", "ImplementationSpecific"]),
    (&["restartPolicy"], &["Always", "OnFailure", "Never"]),
    (&["dnsPolicy"], &["ClusterFirst", "Default", "ClusterFirstWithHostNet"]),
    (&["concurrencyPolicy"], &["Allow", "Forbid", "Replace"]),
    (&["completionMode"], &["NonIndexed", "Indexed"]),
    (&["podReplacementPolicy"], &["TerminatingOrFailed", "Failed"]),
    (&["action"], &["FailJob", "Ignore", "Count"]),
    (&["operator"], &["In", "NotIn", "Exists", "DoesNotExist", "Equal", "Gt", "Lt"]),
    (&["effect"], &["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    (&["whenUnsatisfiable"], &["DoNotSchedule", "ScheduleAnyway"]),
    (&["nodeAffinityPolicy", "nodeTaintsPolicy"], &["Honor", "Ignore"]),
    (&["podManagementPolicy"], &["OrderedReady", "Parallel"]),
    (&["whenDeleted", "whenScaled"], &["Retain", "Delete"]),
    (&["sessionAffinity"], &["None", "ClientIP"]),
    (&["externalTrafficPolicy", "internalTrafficPolicy"], &["Cluster", "Local"]),
    (&["trafficDistribution"], &["PreferClose", "PreferSameZone", "PreferSameNode"]),
    (&["ipFamilyPolicy"], &["SingleStack", "PreferDualStack"]),
    (&["ipFamilies", "addressType"], &["IPv4", "IPv6"]),
    (&["accessModes"], &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]),
    (&["persistentVolumeReclaimPolicy", "reclaimPolicy"], &["Retain", "Delete", "Recycle"]),
    (&["volumeMode"], &["Filesystem", "Block"]),
    (&["volumeBindingMode"], &["Immediate", "WaitForFirstConsumer"]),
    (&["volumeLifecycleModes"], &["Persistent", "Ephemeral"]),
    (&["fsGroupPolicy"], &["File", "None", "ReadWriteOnceWithFSType"]),
    (&["fsGroupChangePolicy"], &["OnRootMismatch", "Always"]),
    (&["supplementalGroupsPolicy"], &["Merge", "Strict"]),
    (&["failurePolicy"], &["Ignore", "Fail"]),
    (&["matchPolicy"], &["Equivalent", "Exact"]),
    (&["sideEffects"], &["None", "NoneOnDryRun"]),
    (&["reinvocationPolicy"], &["Never", "IfNeeded"]),
    (&["scope"], &["*", "Namespaced", "Cluster"]),
    (&["operations"], &["CREATE", "UPDATE", "DELETE", "CONNECT", "*"]),
    (&["validationActions"], &["Deny", "Warn", "Audit"]),
    (&["parameterNotFoundAction"], &["Allow", "Deny"]),
    (&["patchType"], &["JSONPatch", "ApplyConfiguration"]),
    (&["policyTypes"], &["Ingress", "Egress"]),
    (&["unhealthyPodEvictionPolicy"], &["IfHealthyBudget", "AlwaysAllow"]),
    (&["selectPolicy"], &["Max", "Min", "Disabled"]),
    (&["preemptionPolicy"], &["PreemptLowerPriority", "Never"]),
    (&["procMount"], &["Default", "Unmasked"]),
    (&["mountPropagation"], &["None", "HostToContainer", "Bidirectional"]),
    (&["recursiveReadOnly"], &["Disabled", "IfPossible", "Enabled"]),
    (&["terminationMessagePolicy"], &["File", "FallbackToLogsOnError"]),
    (&["medium"], &["Memory", ""]),
    (&["resource"], &["limits.cpu", "requests.cpu", "limits.memory", "requests.memory", "cpu", "memory"]),
    (&["fieldPath"], &["metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.podIP"]),
    (&["expression", "valueExpression"], &["true", "1 == 1", "'x'", "object.metadata.name == 'x'"]),
    (&["messageExpression"], &["'one'", "'two'"]),
    (&["rule"], &["true", "self == self", "1 == 1"]),
    (&["schedule"], &["*/5 * * * *", "0 3 * * *"]),
    (&["timeZone"], &["Etc/UTC", "Europe/Berlin"]),
    (&["verbs"], &["get", "list", "watch", "update", "*"]),
    (&["scopes"], &["BestEffort", "NotBestEffort", "NotTerminating", "Terminating"]),
    (&["jsonPath"], &[".spec.size", ".spec.color"]),
    (&["format"], &["int32", "int64", "date-time"]),
    (&["reason"], &["Invalid", "Forbidden", "Unauthorized"]),
    (&["strategy"], &["None", "Webhook"]),
    (&["nonResourceURLs"], &["/healthz", "/readyz", "*"]),
    (&["kind"], &["User", "Group", "ConfigMap", "Secret", "Deployment", "StatefulSet"]),
    (&["apiVersion"], &["v1", "apps/v1", "example.com/v1"]),
    (&["apiVersions"], &["v1", "v1beta1", "*"]),
    (&["admissionReviewVersions"], &["v1", "v1beta1"]),
    (&["renewTime", "acquireTime"], &["2026-01-01T00:00:00.000000Z", "2027-01-01T00:00:00.000000Z"]),
];

fn alternatives(field: &str) -> &'static [&'static str] {
    ALTERNATIVES.iter().find(|(fields, _)| fields.contains(&field)).map_or(&[], |(_, values)| values)
}

/// The object without what moves by itself: versions, times, status, and who holds what.
pub fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for volatile in ["resourceVersion", "managedFields", "generation"] {
            metadata.remove(volatile);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("deprecated.daemonset.template.generation");
        }
    }
    object
}

/// The pointers of every value below `value`, itself first; what comes later lies deeper or further on.
pub fn pointers(value: &Value) -> Vec<String> {
    let mut pointers = vec![String::new()];
    let mut below = |step: String, value: &Value| {
        pointers.extend(self::pointers(value).into_iter().map(|pointer| format!("/{step}{pointer}")));
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| below(escape(name), value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| below(index.to_string(), value)),
        _ => {}
    }
    pointers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_places_are_found_in_the_object() {
        let object = json!({"metadata": {"labels": {"a/b": "x"}, "finalizers": ["y", "z"]},
            "spec": {"ports": [{"port": 1, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "http"}], "selector": {"a": "b"}}});
        let answer = json!({"metadata": {"managedFields": [
            {"manager": "other", "operation": "Apply", "fieldsV1": {"f:spec": {"f:x": {}}}},
            {"manager": "m", "operation": "Apply", "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a/b": {}}, "f:finalizers": {"v:\"z\"": {}}},
                "f:spec": {"f:selector": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}}}}}]}});
        let places = held_by("m", &answer, &object);
        let leaves: Vec<(&str, &str)> =
            places.iter().filter(|place| place.is_leaf).map(|place| (place.path.as_str(), place.pointer.as_str())).collect();
        assert_eq!(
            leaves,
            [
                ("/metadata/finalizers/[=z]", "/metadata/finalizers/1"),
                ("/metadata/labels/a~1b", "/metadata/labels/a~1b"),
                ("/spec/ports/[port=80,protocol=TCP]/name", "/spec/ports/1/name"),
                ("/spec/ports/[port=80,protocol=TCP]/port", "/spec/ports/1/port"),
                ("/spec/selector", "/spec/selector"),
            ]
        );
        let list = places.iter().find(|place| place.path == "/spec/ports").unwrap();
        assert_eq!(list.keys, ["port", "protocol"]);
        assert!(places.iter().filter(|place| list.covers(place)).count() == 4 && !list.covers(places.first().unwrap()));
    }

    #[test]
    fn other_values_have_the_type_of_the_value() {
        for (pointer, value, first) in [
            ("/spec/replicas", json!(2), json!(3)),
            ("/spec/paused", json!(true), json!(false)),
            ("/spec/size", json!(1.5), json!(2.0)),
            ("/spec/memory", json!("512Mi"), json!("513Mi")),
            ("/spec/cidr", json!("10.0.0.0/24"), json!("10.0.1.0/24")),
            ("/spec/image", json!("nginx"), json!("nginx-x")),
            ("/spec/image", json!("registry.example/web:1"), json!("registry.example/web:2")),
            ("/spec/ports/0/protocol", json!("UDP"), json!("SCTP")),
            ("/data/key", json!("eA=="), json!("b3RoZXI=")),
        ] {
            let others = others(pointer, &value);
            assert_eq!(others.first(), Some(&first), "{pointer} {value}");
            assert!(!others.contains(&value));
        }
        assert_eq!(other_types(&json!(80)).first(), Some(&json!("http")));
        assert!(other_types(&json!(true)).is_empty());
    }

    #[test]
    fn every_value_has_a_pointer() {
        let value = json!({"a": [1, {"b/c": 2}]});
        let pointers = pointers(&value);
        assert_eq!(pointers, ["", "/a", "/a/0", "/a/1", "/a/1/b~1c"]);
        assert!(pointers.iter().all(|pointer| value.pointer(pointer).is_some()));
    }
}
