//! The fixtures: manifests of every kind, of which any number of copies can be made.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use holdfast_testkit::{
    ControlPlane, Target, Writer,
    mutation::{self, Place},
    parse_yaml, programs, status_message,
};
use serde_json::{Value, json};

use super::{
    NAMESPACE,
    plan::{self, Mutation},
};

/// Stands in a fixture where its copies must differ: two digits.
const COPY: &str = "__N__";
/// Copies that can be told apart.
const MOST_COPIES: usize = 100;
/// Definitions and namespaces that are there before the releases.
const PREPARED: &str = "prepared.yaml";
/// The manager of the dry-run that tells what a manifest owns.
const ASKING: &str = "mutate";

/// One manifest and what is to be done to its copies.
pub struct Fixture {
    /// The release that declares it.
    pub release: String,
    /// Its kind, for the table.
    pub kind: String,
    /// Owned leaves of one copy.
    pub leaves: usize,
    /// The mutations of each copy, by their place in the list of all.
    pub shares: Vec<Vec<usize>>,
    text: String,
}

/// One copy of a fixture.
pub struct Copy {
    /// As in the chart.
    pub declared: Value,
    /// Where it is.
    pub target: Target,
}

impl Fixture {
    /// The fixture's copy of that number.
    pub fn copy(&self, number: usize) -> Result<Value> {
        let mut copy = serde_json::from_str(&self.text.replace(COPY, &format!("{number:02}"))).context("a fixture")?;
        make_numbers(&mut copy);
        Ok(copy)
    }

    /// The text of all copies, as a chart's template.
    fn template(&self) -> Result<String> {
        let copies = (0..self.shares.len()).map(|number| Ok(format!("---\n{}\n", self.copy(number)?)));
        copies.collect()
    }
}

/// Makes numbers of texts such as `#30007`: what differs between copies is written as a text.
fn make_numbers(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(make_numbers),
        Value::Array(items) => items.iter_mut().for_each(make_numbers),
        Value::String(text) => {
            if let Some(number) = text.strip_prefix('#').and_then(|number| number.parse::<u64>().ok()) {
                *value = number.into();
            }
        }
        _ => {}
    }
}

/// As Helm sends it: with what makes it the release's.
pub fn as_sent(declared: &Value, release: &str) -> Value {
    let mut object = declared.clone();
    let members = [
        ("labels", json!({"app.kubernetes.io/managed-by": "Helm"})),
        ("annotations", json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": NAMESPACE})),
    ];
    for (name, further) in members {
        let map = object
            .pointer_mut("/metadata")
            .and_then(Value::as_object_mut)
            .map(|metadata| metadata.entry(name).or_insert_with(|| json!({})));
        if let (Some(map), Some(further)) = (map.and_then(Value::as_object_mut), further.as_object()) {
            map.extend(further.clone());
        }
    }
    object
}

/// What a manifest claims, as the server tells it.
pub struct Claims {
    /// The server's answer to a dry-run.
    pub answer: Value,
}

impl Claims {
    /// Asks about one copy of a release's manifest.
    pub async fn of(asking: &Writer, copy: &Copy, release: &str) -> Result<Self> {
        let what = || format!("what {} {} owns", copy.target.plural, copy.target.name);
        let answer = asking.dry_run_apply(&copy.target, &as_sent(&copy.declared, release)).await.with_context(what)?;
        Ok(Self { answer })
    }

    /// The claimed places of an object, and what they lie below.
    pub fn places(&self, object: &Value) -> Vec<Place> {
        mutation::held_by(ASKING, &self.answer, object)
    }
}

/// Whoever asks what manifests own.
pub fn asking(plane: &ControlPlane) -> Result<Writer> {
    plane.writer(ASKING)
}

/// Which mutations are wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// At most this many for each fixture.
    pub sample: Option<usize>,
    /// Only fixtures of these kinds; of all where there are none.
    pub kinds: Vec<String>,
}

/// Prepares a cluster for the fixtures.
pub async fn prepare(plane: &ControlPlane) -> Result<()> {
    plane.namespace(NAMESPACE).await?;
    let prepared = folder()?.join(PREPARED);
    let text = fs::read_to_string(&prepared).with_context(|| format!("reading {}", prepared.display()))?;
    plane.apply_yaml("platform", &text).await.map(drop)
}

/// Reads the fixtures and asks a prepared cluster what can be done to them.
pub async fn load(plane: &ControlPlane, wanted: &Wanted) -> Result<Vec<Fixture>> {
    let asking = asking(plane)?;
    let mut files: Vec<PathBuf> = fs::read_dir(folder()?).context("reading e2e/fixtures")?.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.file_name().is_some_and(|name| name != PREPARED));
    files.sort();
    let mut fixtures = Vec::new();
    let mut unfit = Vec::new();
    for file in files {
        let release = file.file_stem().and_then(|name| name.to_str()).context("a fixture without a name")?.to_owned();
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        for object in parse_yaml(&text).with_context(|| file.display().to_string())? {
            let kind = object.get("kind").and_then(Value::as_str).context("a fixture without a kind")?.to_owned();
            if !wanted.kinds.is_empty() && !wanted.kinds.iter().any(|wanted| wanted.eq_ignore_ascii_case(&kind)) {
                continue;
            }
            let mut fixture =
                Fixture { release: release.clone(), kind: kind.clone(), leaves: 0, shares: Vec::new(), text: object.to_string() };
            let declared = fixture.copy(0)?;
            let target = plane.targets_of(std::slice::from_ref(&declared), NAMESPACE).await?.pop().context("no target")?;
            let claims = match Claims::of(&asking, &Copy { declared, target }, &release).await {
                Ok(claims) => claims,
                Err(error) => {
                    unfit.push(format!("{kind}: {}", status_message(&error).map_or_else(|| error.to_string(), ToOwned::to_owned)));
                    continue;
                }
            };
            let places = claims.places(&claims.answer);
            let mutations = plan::mutations(&places, &claims.answer);
            fixture.leaves = places.iter().filter(|place| place.is_leaf).count();
            fixture.shares = shares(&mutations, wanted.sample);
            ensure!(fixture.shares.len() <= MOST_COPIES, "a {} would need {} copies", fixture.kind, fixture.shares.len());
            fixtures.push(fixture);
        }
    }
    ensure!(unfit.is_empty(), "the server does not take these fixtures:\n{}", unfit.join("\n"));
    Ok(fixtures)
}

/// Which mutations each copy gets. A sample is spread evenly and the same every time.
fn shares(mutations: &[Mutation], sample: Option<usize>) -> Vec<Vec<usize>> {
    let every = sample.map_or(1, |sample| mutations.len().div_ceil(sample.max(1)).max(1));
    let wanted: Vec<(usize, &Mutation)> =
        mutations.iter().enumerate().filter(|(index, _)| index.checked_rem(every) == Some(every / 2)).collect();
    let mut shares: Vec<Vec<usize>> = Vec::new();
    for ((index, _), copy) in wanted.iter().zip(plan::copies(wanted.iter().map(|(_, mutation)| *mutation))) {
        shares.resize(shares.len().max(copy + 1), Vec::new());
        if let Some(share) = shares.get_mut(copy) {
            share.push(*index);
        }
    }
    shares
}

/// Writes a chart of all fixtures of a release; answers where it is.
pub fn chart(fixtures: &[Fixture], release: &str, plane: &ControlPlane) -> Result<PathBuf> {
    let chart = plane.dir().join("charts").join(release);
    fs::create_dir_all(chart.join("templates")).context("making a chart")?;
    fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: {release}\nversion: 0.1.0\n")).context("making a chart")?;
    let text = fixtures.iter().filter(|fixture| fixture.release == release).map(Fixture::template).collect::<Result<String>>()?;
    fs::write(chart.join("templates/all.yaml"), text).context("making a chart")?;
    Ok(chart)
}

fn folder() -> Result<PathBuf> {
    Ok(programs::workspace()?.join("e2e/fixtures"))
}
