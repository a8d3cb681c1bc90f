//! Manifests to objects: Lists, namespaces, hooks, duplicates, and documents that are none. Case D16 among them.

use std::fmt::Write;

use holdfast_engine::object::{Gvk, Scope};
use holdfast_helm::{ApplyMethod, Cause, Limits, Objects, Record, Status, YamlError, documents, objects};
use proptest::prelude::*;
use serde_json::{Value, json};

const CANARY: &str = "CANARY-77b0";

fn record(manifest: &str) -> Record {
    Record {
        name: "web".to_owned(),
        namespace: "t".to_owned(),
        version: 1,
        status: Status::Deployed,
        first_deployed: None,
        last_deployed: None,
        deleted: None,
        chart: None,
        apply_method: ApplyMethod::ClientSide,
        manifest: manifest.to_owned(),
    }
}

fn scope_of(gvk: &Gvk) -> Option<Scope> {
    match gvk.kind.as_str() {
        "ClusterRole" | "Namespace" => Some(Scope::Cluster),
        "ConfigMap" | "Secret" | "Service" | "Deployment" | "Pod" => Some(Scope::Namespaced),
        _ => None,
    }
}

fn read(manifest: &str) -> Objects {
    objects(&record(manifest), &scope_of)
}

fn keys(objects: &Objects) -> Vec<String> {
    objects.objects.iter().map(|object| object.key.to_string()).collect()
}

fn causes(objects: &Objects) -> Vec<(usize, Cause)> {
    objects.problems.iter().map(|problem| (problem.document, problem.cause)).collect()
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
}

const D16: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: d, namespace: t}
data:
  s.sh: |
    # --- ruler --------
    ---
    echo hi
  host: xn-----flckrvpb3h5b.xn--p1ai
  note: "a --- b"
"#;

#[test]
fn d16_a_ruler_is_no_separator() {
    let data = json!({"s.sh": "# --- ruler --------\n---\necho hi\n", "host": "xn-----flckrvpb3h5b.xn--p1ai", "note": "a --- b"});
    let siblings = [
        ("as it is", D16.to_owned()),
        ("leading separator", format!("---\n{D16}")),
        ("comment after the separator", format!("--- # Source: x\n{D16}")),
        ("trailing blanks", format!("---  \t\n{D16}---   \n")),
        ("byte order mark", format!("\u{feff}{D16}")),
        ("byte order mark and separator", format!("\u{feff}---\n{D16}")),
        ("comment-only and empty documents", format!("---\n# a\n---\n\n---\n---\n{D16}---\n# b\n")),
        ("on the separator's line", format!("---{D16}")),
        ("carriage returns", D16.replace('\n', "\r\n")),
        ("no newline at the end", D16.trim_end().to_owned()),
        ("after a bare end", format!("{D16}...\nkind: Secret\nthis: [is not part of it\n")),
    ];
    for (name, manifest) in siblings {
        let read = read(&manifest);
        assert_eq!(keys(&read), ["ConfigMap t/d"], "{name}");
        assert_eq!(read.objects[0].value["data"], data, "{name}");
        assert_eq!(causes(&read), [], "{name}");
    }
    let twice = read(&format!("---{}---{}", config_map("a"), config_map("b")));
    assert_eq!(keys(&twice), ["ConfigMap t/a", "ConfigMap t/b"]);
}

#[test]
fn namespaces_are_settled() {
    let read = read(concat!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: other}\n---\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: ''}\n---\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: ~}\n---\n",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: cr, namespace: t}\n",
    ));
    assert_eq!(keys(&read), ["ConfigMap t/a", "ConfigMap other/a", "ConfigMap t/b", "ConfigMap t/c", "ClusterRole cr"]);
    let written: Vec<_> = read.objects.iter().map(|object| object.value["metadata"].get("namespace").cloned()).collect();
    assert_eq!(written, [Some("t".into()), Some("other".into()), Some("t".into()), Some("t".into()), None]);
    assert_eq!(read.problems, []);
}

#[test]
fn lists_are_flattened() {
    let read = read(concat!(
        "apiVersion: v1\nkind: List\nitems:\n",
        "- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n",
        "- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: nested}}, {metadata: {name: bare}}]}\n",
        "- 5\n",
        "- {apiVersion: v1, kind: ConfigMap, metadata: {name: b, annotations: {helm.sh/hook: pre-install}}}\n---\n",
        "apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: typed}}, {kind: Secret, metadata: {name: half}}]\n---\n",
        "apiVersion: v1\nkind: List\nitems: []\n---\n",
        "apiVersion: v1\nkind: List\nitems:\n---\n",
        "apiVersion: v1\nkind: List\nitems: {a: b}\n---\n",
        "items: []\n---\n",
        "apiVersion: v1\nkind: List\n",
    ));
    assert_eq!(keys(&read), ["ConfigMap t/a", "ConfigMap t/b", "ConfigMap t/nested", "ConfigMap t/typed"]);
    assert_eq!(read.objects[3].value, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "typed", "namespace": "t"}}));
    assert_eq!(
        causes(&read),
        [
            (1, Cause::NotAnObject),
            (1, Cause::BadKind),
            (2, Cause::BadApiVersion),
            (5, Cause::BadList),
            (6, Cause::BadKind),
            (7, Cause::BadName)
        ]
    );
}

#[test]
fn hooks_are_left_out() {
    let hook = "apiVersion: v1\nkind: Pod\nmetadata: {name: h, annotations: {\"helm.sh/hook\": test}}\n";
    let read = read(&format!("{hook}---\n{}", config_map("a")));
    assert_eq!(keys(&read), ["ConfigMap t/a"]);
    assert_eq!(read.problems, []);
}

#[test]
fn the_last_of_two_counts() {
    let read = read(concat!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: one}\n---\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n---\n",
        "apiVersion: v2\nkind: ConfigMap\nmetadata: {name: a, namespace: t}\ndata: {k: two}\n",
    ));
    assert_eq!(keys(&read), ["ConfigMap t/b", "ConfigMap t/a"]);
    assert_eq!(read.objects[1].value["data"]["k"], "two");
    assert_eq!(causes(&read), [(3, Cause::Duplicate)]);
    assert_eq!(read.problems[0].reason(), "ManifestInvalid");
}

#[test]
fn a_kind_that_is_not_served_keeps_its_identity() {
    let read = read(
        "apiVersion: test.example/v1\nkind: Widget\nmetadata: {name: w, namespace: ns}\n---\napiVersion: x/v1\nkind: Thing\nmetadata: {name: g}\n",
    );
    assert_eq!(read.objects, []);
    assert_eq!(causes(&read), [(1, Cause::KindNotServed), (2, Cause::KindNotServed)]);
    let named = read.problems[0].object.as_ref().unwrap();
    assert_eq!(
        (&named.gvk, named.namespace.as_deref(), named.name.as_deref()),
        (&Gvk::new("test.example/v1", "Widget"), Some("ns"), Some("w"))
    );
    assert_eq!(read.problems[0].reason(), "KindNotServed");
    assert_eq!(read.problems[0].to_string(), "document 1 (Widget ns/w): the cluster does not serve this kind");
}

#[test]
fn one_bad_document_stops_nothing_and_says_nothing() {
    let bad = [
        (format!("a: [{CANARY}\n"), Cause::Yaml(YamlError::Syntax { line: 2 })),
        (format!("{CANARY}\n"), Cause::NotAnObject),
        (format!("- {CANARY}\n"), Cause::NotAnObject),
        (format!("a: *{CANARY}\n"), Cause::Yaml(YamlError::Syntax { line: 1 })),
        (format!("? {{a: {CANARY}}}\n: b\n"), Cause::Yaml(YamlError::BadKey)),
        (format!("a: !!int {CANARY}\n"), Cause::Yaml(YamlError::BadTag)),
        (format!("<<: {CANARY}\n"), Cause::Yaml(YamlError::BadMerge)),
        (format!("a: .inf\nb: {CANARY}\n"), Cause::Yaml(YamlError::NotANumber)),
        (format!("a: \"{CANARY}\u{7}\"\n"), Cause::Yaml(YamlError::Character)),
        (format!("a: {}{CANARY}{}\n", "[".repeat(200), "]".repeat(200)), Cause::Yaml(YamlError::TooDeep)),
        (format!("a: &a [*a, {CANARY}]\n"), Cause::Yaml(YamlError::TooDeep)),
        (format!("kind: ConfigMap\nx: {CANARY}\n"), Cause::BadApiVersion),
        (format!("apiVersion: v1\nx: {CANARY}\n"), Cause::BadKind),
        (format!("apiVersion: v1\nkind: \"{CANARY}\"\n"), Cause::BadKind),
        (format!("apiVersion: \"v1\\n{CANARY}\"\nkind: ConfigMap\n"), Cause::BadApiVersion),
        (format!("apiVersion: v1\nkind: Secret\nstringData: {{p: {CANARY}}}\n"), Cause::BadName),
        (format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: 5}}\nstringData: {{p: {CANARY}}}\n"), Cause::BadName),
        (format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: ../{CANARY}}}\n"), Cause::BadName),
        (format!("apiVersion: v1\nkind: Secret\nmetadata: {{generateName: {CANARY}-}}\n"), Cause::GeneratedName),
        (format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a, namespace: {CANARY}}}\n"), Cause::BadNamespace),
        (format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a, namespace: [x]}}\nd: {CANARY}\n"), Cause::BadNamespace),
    ];
    for (text, cause) in bad {
        let read = read(&format!("---\n{}---\n{text}---\n{}", config_map("before"), config_map("after")));
        assert_eq!(keys(&read), ["ConfigMap t/before", "ConfigMap t/after"], "{text}");
        assert_eq!(causes(&read), [(2, cause)], "{text}");
        let said = format!("{:?} {}", read, read.problems[0]);
        assert!(!said.contains(CANARY), "{said}");
    }
}

#[test]
fn debug_texts_hold_no_values() {
    let manifest = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{p: {CANARY}}}\n");
    let read = read(&manifest);
    assert_eq!(read.objects[0].value["stringData"]["p"], CANARY);
    assert!(!format!("{read:?}").contains(CANARY));
    assert!(!format!("{:?}", documents(&manifest, &Limits::default()).collect::<Vec<_>>()).contains(CANARY));
}

#[test]
fn an_empty_manifest_has_no_objects() {
    assert_eq!(read(""), Objects::default());
}

fn errors(manifest: &str, limits: &Limits) -> Vec<Option<YamlError>> {
    documents(manifest, limits).map(|document| document.value.err()).collect()
}

#[test]
fn limits_hold() {
    let limits = Limits { documents: 2, nodes: 100, depth: 10, ..Limits::default() };
    assert_eq!(errors("a\n---\nb\n---\nc\n---\nd\n", &limits), [None, None, Some(YamlError::TooManyDocuments)]);
    assert_eq!(errors(&"{}".repeat(5), &limits), [None, None, Some(YamlError::TooManyDocuments)], "a JSON stream");
    let many = format!("[{}]", "1,".repeat(200));
    assert_eq!(errors(&many, &limits), [Some(YamlError::TooManyNodes)]);
    assert_eq!(errors(&format!("{{\"a\":[{}1]}}", "1,".repeat(200)), &limits), [Some(YamlError::TooManyNodes)]);
    assert_eq!(errors(&format!("a: &a [{}]\nb: [*a, *a, *a]\n", "1,".repeat(30)), &limits), [Some(YamlError::TooManyNodes)]);
    assert_eq!(errors(&format!("{}1", "- ".repeat(20)), &limits), [Some(YamlError::TooDeep)]);
    assert_eq!(errors(&format!("{}1", "[".repeat(20)), &limits), [Some(YamlError::TooDeep)]);
    // The budget is the manifest's: what one document used, the next cannot.
    let half = format!("[{}]\n", "1,".repeat(60));
    assert_eq!(errors(&format!("{half}---\n{half}"), &limits), [None, Some(YamlError::TooManyNodes)]);
}

#[test]
fn bombs_end_early() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let previous = level - 1;
        let nine = format!("*a{previous}, ").repeat(9);
        writeln!(laughs, "a{level}: &a{level} [{nine}]").unwrap();
    }
    assert_eq!(errors(&laughs, &Limits::default()), [Some(YamlError::TooManyNodes)]);
    // Few nodes, much text: as a value, as a key, in a merge.
    let long = "x".repeat(1 << 20);
    for again in ["b: [", "b: [{*a : 1}, ", "b: [{<<: {c: *a}}, "] {
        let repeated = format!("a: &a {long}\n{again}{}]\n", "*a, ".repeat(500));
        assert_eq!(errors(&repeated, &Limits::default()), [Some(YamlError::TooMuchText)], "{again}");
    }
    assert_eq!(errors(&"[".repeat(1 << 20), &Limits::default()), [Some(YamlError::TooDeep)]);
    assert_eq!(errors(&"- ".repeat(1 << 20), &Limits::default()), [Some(YamlError::TooDeep)]);
    assert_eq!(errors(&"{a: ".repeat(1 << 18), &Limits::default()), [Some(YamlError::TooDeep)]);
    assert_eq!(errors(&"{\"a\":".repeat(1 << 18), &Limits::default()).len(), 1);
    assert_eq!(errors(&"? ".repeat(1 << 20), &Limits::default()), [Some(YamlError::TooDeep)]);
    assert_eq!(errors(&"!a ".repeat(1 << 18), &Limits::default()).len(), 1);
}

fn yaml_soup() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "b: ",
        "- ",
        "  ",
        "\n",
        "\n  ",
        "? ",
        ": ",
        ":",
        "{",
        "}",
        "[",
        "]",
        ",",
        "'",
        "\"",
        "|",
        "|+\n",
        ">2\n",
        "&x ",
        "*x",
        "<<: ",
        "!!str ",
        "!t ",
        "!<x> ",
        "# c\n",
        "\t",
        "---",
        "...",
        "---\n",
        "\r\n",
        "\u{2028}",
        "\u{85}",
        "\u{feff}",
        "é",
        "\\",
        "\\x41",
        "~",
        "0x1",
        "1e9",
        "%TAG ! x\n",
        "%",
        "kind: List\n",
        "items: ",
        "metadata: {name: a}\n",
        "apiVersion: v1\n",
        "kind: ConfigMap\n",
    ];
    proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn never_panics_on_text(manifest in "\\PC*") {
        read(&manifest);
    }

    #[test]
    fn never_panics_on_yaml_soup(manifest in yaml_soup()) {
        read(&manifest);
    }

    #[test]
    fn json_reads_as_itself(text in "[ -~\u{a0}-\u{2000}\n\t]*", number: i64, yes: bool) {
        let value = json!({"kind": text, "list": [number, yes, null, {"text": text}], "map": {"k": {}, "l": []}});
        let yaml: Vec<_> = documents(&format!("---\n{value}\n"), &Limits::default()).collect();
        prop_assert_eq!(yaml.len(), 1);
        prop_assert_eq!(&yaml[0].value, &Ok::<Value, _>(value));
    }
}
