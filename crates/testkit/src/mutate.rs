//! Ready-made mutations for [`crate::MutatingWebhook`].

use serde_json::Value;

use crate::webhook::{Admission, Operation};

/// The registry that images are redirected to.
pub const MIRROR: &str = "mirror.local/";

/// Redirects every image to [`MIRROR`] unless it is there already.
pub fn mirror_images(object: &mut Value, _: &Admission) {
    for_each_image(object, |image| if image.starts_with(MIRROR) { image.to_owned() } else { format!("{MIRROR}{image}") });
}

/// Puts [`MIRROR`] before every image, again and again: a webhook that forgot to look.
pub fn mirror_images_blindly(object: &mut Value, _: &Admission) {
    for_each_image(object, |image| format!("{MIRROR}{image}"));
}

/// Sets a label of the object.
pub fn label(key: &'static str, value: &'static str) -> impl Fn(&mut Value, &Admission) + Send + Sync + 'static {
    move |object, _| {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let labels = metadata.entry("labels").or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(key.to_owned(), value.into());
        }
    }
}

/// Does `mutate` to new objects only.
pub fn on_create(
    mutate: impl Fn(&mut Value, &Admission) + Send + Sync + 'static,
) -> impl Fn(&mut Value, &Admission) + Send + Sync + 'static {
    move |object, admission| {
        if admission.operation == Operation::Create {
            mutate(object, admission);
        }
    }
}

/// The containers of a Pod or of anything with a Pod template.
fn for_each_image(object: &mut Value, rewrite: impl Fn(&str) -> String) {
    for spec in ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"] {
        for list in ["initContainers", "containers"] {
            let containers = object.pointer_mut(&format!("{spec}/{list}")).and_then(Value::as_array_mut);
            for image in containers.into_iter().flatten().filter_map(|container| container.get_mut("image")) {
                if let Some(text) = image.as_str() {
                    *image = rewrite(text).into();
                }
            }
        }
    }
}
