//! Requests about one report.

use holdfast_api::report::{DriftReport, DriftReportStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ReportKey, content::Content};
use crate::{
    fleet_view::{ObjectName, OwnerRef},
    management::{
        self, Failure,
        slim::{self, resource_like},
    },
};

/// A report as it is sent and read. One that another version of the hub wrote must not stop the list, so spec and status are read
/// leniently.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportObject {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    status: Value,
}

resource_like!(ReportObject, DriftReport);

/// A report that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// Its key; `None` where it is none of ours.
    pub key: Option<ReportKey>,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
    /// What it says.
    pub content: Content,
}

impl Live {
    /// What matters of an object.
    pub fn read(object: ReportObject) -> Self {
        let spec = serde_json::from_value(object.spec.clone()).ok();
        Self {
            key: spec.as_ref().and_then(|spec| ReportKey::of_stored(&ObjectName::of(&object), spec)),
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().unwrap_or_default(),
            content: Content {
                owners: object.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
                labels: object.metadata.labels.unwrap_or_default(),
                spec,
                status: serde_json::from_value(object.status).ok(),
            },
        }
    }
}

/// What one report needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// It does not exist.
    Create,
    /// It exists in this version and is not as it should be.
    Update {
        /// UID it must have.
        uid: String,
        /// Resource version it must have.
        version: String,
        /// Whether labels, owner or spec differ.
        frame: bool,
    },
    /// It must go.
    Delete {
        /// UID it must have.
        uid: String,
    },
}

/// How a write ended.
#[derive(Debug, PartialEq)]
pub enum Written {
    /// The report is stored like this.
    Stands(Live),
    /// There is no report.
    Gone,
    /// Somebody else was faster; this is what there is now.
    Overtaken(Option<Live>),
}

/// Carries a write out.
pub async fn carry_out(
    client: &Client,
    name: &ObjectName,
    key: &ReportKey,
    owner: &OwnerRef,
    status: &DriftReportStatus,
    write: &Write,
) -> Result<Written, Failure> {
    let api: Api<ReportObject> = Api::namespaced_with(client.clone(), &name.namespace, &());
    let outcome = match write {
        Write::Create => create(&api, name, key, owner, status).await,
        Write::Update { uid, version, frame } => {
            let version = if *frame { mend_frame(&api, name, key, owner, uid, version).await } else { Ok(version.clone()) };
            match version {
                Ok(version) => put_status(&api, name, key, status, uid, &version).await,
                Err(failure) => Err(failure),
            }
        }
        Write::Delete { uid } => return delete(&api, name, uid).await,
    };
    match outcome {
        Ok(live) => Ok(Written::Stands(live)),
        Err(Failure::AlreadyExists | Failure::Conflict | Failure::NotFound) => read(&api, name).await.map(Written::Overtaken),
        Err(failure) => Err(failure),
    }
}

async fn create(
    api: &Api<ReportObject>,
    name: &ObjectName,
    key: &ReportKey,
    owner: &OwnerRef,
    status: &DriftReportStatus,
) -> Result<Live, Failure> {
    let mut object = object(name, key);
    object.metadata.labels = Some(key.labels());
    object.metadata.owner_references = Some(vec![owner.to_owner_reference()]);
    let created = Live::read(management::call(api.create(&PostParams::default(), &object)).await?);
    // A create drops the status of a kind with a status subresource.
    put_status(api, name, key, status, &created.uid, &created.version).await
}

/// Puts labels, owner and spec back, and says which version that made.
async fn mend_frame(
    api: &Api<ReportObject>,
    name: &ObjectName,
    key: &ReportKey,
    owner: &OwnerRef,
    uid: &str,
    version: &str,
) -> Result<String, Failure> {
    let patch = Patch::Merge(json!({
        "metadata": {
            "uid": uid,
            "resourceVersion": version,
            "labels": key.labels(),
            "ownerReferences": [owner.to_owner_reference()],
        },
        "spec": key.spec(),
    }));
    let object = management::call(api.patch(&name.name, &PatchParams::default(), &patch)).await?;
    Ok(object.resource_version().unwrap_or_default())
}

/// Replaces the status as a whole, so that nothing that somebody added stays. A resource version in the body makes that conditional.
async fn put_status(
    api: &Api<ReportObject>,
    name: &ObjectName,
    key: &ReportKey,
    status: &DriftReportStatus,
    uid: &str,
    version: &str,
) -> Result<Live, Failure> {
    let mut object = object(name, key);
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.resource_version = Some(version.to_owned());
    object.status = json!(status);
    management::call(api.replace_status(&name.name, &PostParams::default(), &object)).await.map(Live::read)
}

async fn delete(api: &Api<ReportObject>, name: &ObjectName, uid: &str) -> Result<Written, Failure> {
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    match management::call(api.delete(&name.name, &params)).await {
        Ok(_) | Err(Failure::NotFound) => Ok(Written::Gone),
        Err(Failure::Conflict) => read(api, name).await.map(Written::Overtaken),
        Err(failure) => Err(failure),
    }
}

async fn read(api: &Api<ReportObject>, name: &ObjectName) -> Result<Option<Live>, Failure> {
    Ok(management::call(api.get_opt(&name.name)).await?.map(Live::read))
}

fn object(name: &ObjectName, key: &ReportKey) -> ReportObject {
    ReportObject {
        api_version: DriftReport::api_version(&()).into_owned(),
        kind: DriftReport::kind(&()).into_owned(),
        metadata: ObjectMeta { name: Some(name.name.to_string()), namespace: Some(name.namespace.to_string()), ..ObjectMeta::default() },
        spec: json!(key.spec()),
        status: Value::Null,
    }
}
