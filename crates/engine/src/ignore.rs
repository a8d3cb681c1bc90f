//! Ignore rules that reach into what the server keeps as one value: an atomic list or map. What they cover keeps what stands there, the rest
//! of the value still counts.

use serde_json::{Map, Value};

use crate::path::{Path, Segment};

/// What should stand at `path`: the declared value with the live one wherever `ignored` says so. Items of a list are named by their place,
/// from 0; `*` in a pattern stands for any. `None` where nothing below `path` is ignored.
pub fn overlaid(declared: &Value, live: &Value, path: &Path, ignored: &impl Fn(&Path) -> bool) -> Option<Value> {
    let (value, is_any) = overlay(Some(declared), Some(live), path, ignored);
    value.filter(|_| is_any)
}

fn overlay(declared: Option<&Value>, live: Option<&Value>, path: &Path, ignored: &impl Fn(&Path) -> bool) -> (Option<Value>, bool) {
    if declared == live {
        return (declared.cloned(), false);
    }
    let mut is_any = false;
    let mut below = |declared: Option<&Value>, live: Option<&Value>, name: &str| {
        let path = path.join(Segment::field(name));
        if ignored(&path) {
            is_any = true;
            return live.cloned();
        }
        let (value, is_below) = overlay(declared, live, &path, ignored);
        is_any |= is_below;
        value
    };
    let value = match (declared, live) {
        (Some(Value::Object(wanted)), Some(Value::Object(found))) => {
            let names = wanted.keys().chain(found.keys().filter(|name| !wanted.contains_key(*name)));
            let members: Map<String, Value> =
                names.filter_map(|name| Some((name.clone(), below(wanted.get(name), found.get(name), name)?))).collect();
            Some(Value::Object(members))
        }
        (Some(Value::Array(wanted)), Some(Value::Array(found))) => {
            let places = 0..wanted.len().max(found.len());
            Some(Value::Array(places.filter_map(|place| below(wanted.get(place), found.get(place), &place.to_string())).collect()))
        }
        _ => declared.cloned(),
    };
    (value, is_any)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::path::Pattern;

    #[test]
    fn what_is_ignored_keeps_its_live_value_and_the_rest_counts() {
        let declared = json!([{"hosts": ["a"], "secretName": "one"}, {"hosts": ["b"], "secretName": "two"}]);
        let live = json!([{"hosts": ["evil"], "secretName": "x"}, {"hosts": ["b"], "secretName": "y", "extra": 1}]);
        let table = [
            ("/spec/tls/*/secretName", Some(json!([{"hosts": ["a"], "secretName": "x"}, {"hosts": ["b"], "secretName": "y"}]))),
            ("/spec/tls/1/secretName", Some(json!([{"hosts": ["a"], "secretName": "one"}, {"hosts": ["b"], "secretName": "y"}]))),
            ("/spec/tls/0", Some(json!([{"hosts": ["evil"], "secretName": "x"}, {"hosts": ["b"], "secretName": "two"}]))),
            ("/spec/tls/*/extra", Some(json!([{"hosts": ["a"], "secretName": "one"}, {"hosts": ["b"], "secretName": "two", "extra": 1}]))),
            ("/spec/tls/*/hosts/*", Some(json!([{"hosts": ["evil"], "secretName": "one"}, {"hosts": ["b"], "secretName": "two"}]))),
            ("/spec/tls/2", None),
            ("/spec/rules/*/host", None),
        ];
        for (pattern, expected) in table {
            let pattern_ = Pattern::parse(pattern).unwrap();
            let found = overlaid(&declared, &live, &Path::of_fields(&["spec", "tls"]), &|path: &Path| pattern_.covers(path));
            assert_eq!(found, expected, "{pattern}");
        }
    }

    #[test]
    fn items_that_came_or_went_are_ignored_by_their_place() {
        let path = Path::of_fields(&["list"]);
        let second = |path: &Path| path.to_string() == "/list/1";
        assert_eq!(overlaid(&json!([1]), &json!([1, 2]), &path, &second), Some(json!([1, 2])));
        assert_eq!(overlaid(&json!([1, 2]), &json!([3]), &path, &second), Some(json!([1])));
        assert_eq!(overlaid(&json!([1, 2]), &json!("text"), &path, &second), None);
    }
}
