//! Two releases that declare one object: nobody writes it, both say so.

use holdfast_testkit::Target;
use serde_json::json;

use crate::{
    fixture::{Marker, Release, Style, configmap, is_conflict, lines, wait_live, writes_to},
    support::{World, live},
};

/// How the conflict ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The other release's next revision no longer declares the object.
    Dropped,
    /// The other release is uninstalled.
    Uninstalled,
    /// The other release is no longer there, and nobody saw how.
    Vanished,
}

#[tokio::test]
async fn an_object_of_two_releases_is_written_for_neither() {
    for (end, style, guarded) in
        [(End::Dropped, Style::ClientSide, true), (End::Uninstalled, Style::ServerSide, true), (End::Vanished, Style::ClientSide, false)]
    {
        let namespace = &format!("conflict-{end:?}").to_lowercase();
        let mut world = World::new(namespace).await;
        let one = Release::new(&world, "one", style);
        let two = Release::new(&world, "two", style);
        let shared = configmap(namespace, "shared", "color", "blue");
        one.install(&[shared.clone(), configmap(namespace, "of-one", "color", "blue")]).await;
        two.write(&configmap(namespace, "of-two", "color", "green")).await;
        let claimed = [configmap(namespace, "shared", "color", "green"), configmap(namespace, "of-two", "color", "green")];
        two.record(1, "deployed", &claimed).await;
        // A release that no policy selects claims as well as any other.
        let names = if guarded {
            json!([{"namespace": namespace}])
        } else {
            json!([{"namespace": namespace, "name": "one"}, {"namespace": namespace, "name": "marker"}])
        };
        world.policy("Correct", json!({"releases": names})).await;
        let marker = Marker::install(&world).await;
        world.start_hub(&[]);
        let mark = world.workload.audit_mark().await.unwrap();
        world.wait_report(Some("one"), "conflict", |status| is_conflict(status, &format!("{namespace}/two"))).await;
        if guarded {
            world.wait_report(Some("two"), "conflict", |status| is_conflict(status, &format!("{namespace}/one"))).await;
        } else {
            assert!(world.report(Some("two")).await.is_none());
        }

        let kubectl = world.writer("kubectl-edit");
        let target = Target::configmap(namespace, "shared");
        kubectl.merge_patch(&target, &json!({"data": {"color": "red"}})).await.unwrap();
        for (name, color) in [("of-one", "blue"), ("of-two", "green")] {
            if name == "of-one" || guarded {
                let own = Target::configmap(namespace, name);
                kubectl.merge_patch(&own, &json!({"data": {"color": "red"}})).await.unwrap();
                wait_live(&world, &kubectl, &own, "/data/color", &json!(color)).await;
            }
        }
        marker.pass(&world).await;
        let writes = writes_to(world.workload, mark, &target).await;
        assert!(writes.is_empty(), "{end:?}: {:?}", lines(&writes));
        assert_eq!(live(&kubectl, &target, "/data/color").await, json!("red"));

        match end {
            End::Dropped => {
                two.record(1, "superseded", &claimed).await;
                two.record(2, "deployed", &claimed[1..]).await;
            }
            End::Uninstalled => {
                two.record(1, "uninstalling", &claimed).await;
                two.forget(1).await;
            }
            End::Vanished => two.forget(1).await,
        }
        // The one that is left has it corrected, and by its own word.
        wait_live(&world, &kubectl, &target, "/data/color", &json!("blue")).await;
        world.wait_in_sync("one").await;
    }
}
