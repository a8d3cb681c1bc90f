//! Whether two objects of one declaration are alike.

use anyhow::{Result, bail};
use holdfast_testkit::{Helm, managed_fields_without_times};
use serde_json::{Value, json};

/// The object without what differs between two objects of one declaration in two namespaces.
pub fn comparable(mut object: Value, namespace: &str, helm: Helm) -> Value {
    let entries = managed_fields_without_times(&object);
    let metadata = object["metadata"].as_object_mut().unwrap();
    for own in ["creationTimestamp", "generation", "resourceVersion", "uid"] {
        metadata.remove(own);
    }
    metadata.insert("managedFields".to_owned(), json!(entries));
    object.as_object_mut().unwrap().remove("status");
    if object["kind"] == "Service" {
        // The cluster hands these out.
        let spec = object["spec"].as_object_mut().unwrap();
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
        for port in spec["ports"].as_array_mut().unwrap() {
            port.as_object_mut().unwrap().remove("nodePort");
        }
        if helm == Helm::V3 {
            // Whoever writes the key of a port takes along what the cluster handed out with it.
            let text = object["metadata"]["managedFields"].to_string().replace("\"f:nodePort\":{},", "");
            object["metadata"]["managedFields"] = serde_json::from_str(&text).unwrap();
        }
    }
    serde_json::from_str(&object.to_string().replace(&format!("\"{namespace}\""), "\"NAMESPACE\"")).unwrap()
}

/// Fails with every difference.
pub fn same(what: &str, ours: &Value, theirs: &Value) -> Result<()> {
    if ours == theirs {
        return Ok(());
    }
    let mut differences = Vec::new();
    differ("", ours, theirs, &mut differences);
    bail!("{what}: not as on the twin\n{}", differences.join("\n"));
}

fn differ(at: &str, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                differ(&format!("{at}/{name}"), &a.get(name).cloned().unwrap_or_default(), &b.get(name).cloned().unwrap_or_default(), out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differ(&format!("{at}/{index}"), a, b, out);
            }
        }
        _ if ours == theirs => {}
        _ => out.push(format!("{at}\n  ours   {ours}\n  theirs {theirs}")),
    }
}
