//! A controller that keeps a generated Deployment as generated: no loop against a mutating webhook, no call while nothing changed, and
//! somebody's edit is put back once. Run it with `cargo run -p holdfast-engine --example keep_generated -- NAMESPACE`.

use futures::{TryStreamExt as _, pin_mut};
use holdfast_engine::judge::{Answered, Judged, judge};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

const MANAGER: &str = "keeper";

/// What a reconciliation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// What is claimed has not changed since the last look. No call but the read.
    Nothing,
    /// The server makes of the generated object what is there. One dry-run.
    Accepted,
    /// The generated object was written.
    Written,
}

/// Keeps one object.
pub struct Keeper {
    api: Api<DynamicObject>,
    generated: Value,
    /// The last judgement; `None` at first and whenever `generated` changes.
    known: Option<Judged>,
}

impl Keeper {
    /// A keeper that knows nothing yet.
    pub fn new(client: Client, namespace: &str) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        Self { api: Api::namespaced_with(client, namespace, &resource), generated: generate(), known: None }
    }

    /// One look, and what it takes. To be called for every change of the object, whoever made it.
    pub async fn reconcile(&mut self) -> anyhow::Result<Done> {
        let Some(live) = self.api.get_opt("generated").await? else { return self.write().await };
        let live = serde_json::to_value(live)?;
        if self.known.as_ref().is_some_and(|known| known.still_holds(&live)) {
            return Ok(Done::Nothing);
        }
        let answer = self.apply(PatchParams::apply(MANAGER).force().dry_run()).await?;
        self.known = judge(&self.generated, &live, &Answered { object: &answer, manager: MANAGER }).filter(Judged::is_in_sync);
        if self.known.is_some() { Ok(Done::Accepted) } else { self.write().await }
    }

    async fn write(&mut self) -> anyhow::Result<Done> {
        let written = self.apply(PatchParams::apply(MANAGER).force()).await?;
        // What the server made of it is what it is compared with from now on.
        self.known = judge(&self.generated, &written, &Answered { object: &written, manager: MANAGER });
        Ok(Done::Written)
    }

    async fn apply(&self, params: PatchParams) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.api.patch("generated", &params, &Patch::Apply(&self.generated)).await?)?)
    }
}

/// Whatever a real controller makes of its own resource.
fn generate() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "generated"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "generated"}},
            "template": {
                "metadata": {"labels": {"app": "generated"}},
                "spec": {"containers": [{"name": "web", "image": "web:1", "resources": {"limits": {"cpu": "1000m"}}}]},
            },
        },
    })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let namespace = std::env::args().nth(1).unwrap_or_else(|| "default".to_owned());
    let mut keeper = Keeper::new(Client::try_default().await?, &namespace);
    println!("{:?}", keeper.reconcile().await?);
    let changes = watcher(keeper.api.clone(), watcher::Config::default()).default_backoff().touched_objects();
    pin_mut!(changes);
    while changes.try_next().await?.is_some() {
        println!("{:?}", keeper.reconcile().await?);
    }
    Ok(())
}
