//! The JSON patch between two values.

use serde_json::{Value, json};

/// Operations that turn `before` into `after`: members one by one, lists as a whole.
pub(crate) fn operations(before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    collect(before, after, "", &mut operations);
    operations
}

fn collect(before: &Value, after: &Value, path: &str, operations: &mut Vec<Value>) {
    if before == after {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        operations.push(json!({"op": "replace", "path": path, "value": after}));
        return;
    };
    for (key, value) in new {
        let path = member(path, key);
        match old.get(key) {
            Some(before) => collect(before, value, &path, operations),
            None => operations.push(json!({"op": "add", "path": path, "value": value})),
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        operations.push(json!({"op": "remove", "path": member(path, key)}));
    }
}

fn member(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_patched_one_by_one_and_lists_as_a_whole() {
        let before = json!({"same": 1, "gone": 1, "labels": {"a/b~c": "x"}, "list": [1]});
        let after = json!({"same": 1, "labels": {"a/b~c": "y", "new": "z"}, "list": [1, 2]});

        let operations = operations(&before, &after);

        assert_eq!(
            operations,
            [
                json!({"op": "replace", "path": "/labels/a~1b~0c", "value": "y"}),
                json!({"op": "add", "path": "/labels/new", "value": "z"}),
                json!({"op": "replace", "path": "/list", "value": [1, 2]}),
                json!({"op": "remove", "path": "/gone"}),
            ]
        );
    }
}
