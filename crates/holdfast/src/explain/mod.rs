//! `holdfast explain`: the decision about one object as a person reads it. The same engine as the hub's, and nothing is written.

mod account;
mod advice;
mod fleet;
mod object;
mod text;

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context as _, bail};
use clap::Args;
use holdfast_fleet::kubeconfig::HostRule;
use holdfast_hub::{cluster::records::ReleaseName, policy::Guard};

use crate::{
    scan::{
        self, Output, Scope,
        survey::{Guards, Look, Purpose, Survey},
    },
    selection::Target,
};
use account::{Account, Witness};
use fleet::Managed;
use object::Named;

/// Flags of the explanation.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// The cluster, by its name on the management cluster; without it the kubeconfig leads to the cluster itself.
    #[arg(value_name = "CLUSTER")]
    first: String,
    /// The object.
    #[arg(value_name = "KIND/NAME")]
    second: Option<String>,
    /// Namespace of the object, where several of this kind and name are declared.
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    /// The kubeconfig.
    #[command(flatten)]
    target: Target,
    /// Allow servers that are denied by default, as the hub does: a host name or CIDR. Repeatable.
    #[arg(long, env = "HOLDFAST_ALLOW_SERVER", value_name = "HOST|CIDR", value_delimiter = ',')]
    allow_server: Vec<HostRule>,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    output: Output,
    /// Log filter, for example debug.
    #[arg(long, env = "HOLDFAST_LOG", default_value = "error", value_name = "FILTER")]
    log: String,
}

/// Explains and prints.
pub async fn run(arguments: ExplainArguments) -> ExitCode {
    if let Err(error) = crate::logs::start(&arguments.log, crate::logs::LogFormat::Text) {
        eprintln!("holdfast: {error}");
        return ExitCode::from(2);
    }
    let explained = Box::pin(explain(&arguments)).await;
    match explained.and_then(|accounts| scan::print_as(arguments.output, &accounts, |paint| text::render(&accounts, paint))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// One account for each release that declares the object.
async fn explain(arguments: &ExplainArguments) -> anyhow::Result<Vec<Account>> {
    let (cluster, object) = match &arguments.second {
        Some(object) => (Some(arguments.first.as_str()), object),
        None => (None, &arguments.first),
    };
    let wanted = Named::parse(object, arguments.namespace.as_deref())?;
    let managed = match cluster {
        Some(cluster) => Some(Managed::find(&arguments.target, cluster, &arguments.allow_server).await?),
        None => None,
    };
    let survey = match &managed {
        Some(managed) => {
            let guards = guards(managed);
            Survey::prepare(managed.connect()?, Scope::Cluster, Purpose::Look, guards)
                .await
                .with_context(|| format!("cluster {}", managed.entry.name))?
        }
        None => arguments.target.reach().await?.survey(Scope::Cluster, Purpose::Look, Survey::unguarded()).await?,
    };
    // Whoever created an object anew is told from the release by the release's other objects, so all of them are judged.
    let declares = |subject: &scan::survey::Subject| subject.objects.iter().any(|guarded| wanted.is(guarded));
    let look = survey.look(&Scope::Cluster, None, |_, subject| declares(subject)).await?;
    unambiguous(&look, &wanted)?;
    let witness = Witness { survey: &survey, around: &look.around, managed: managed.as_ref() };
    let mut accounts = Vec::new();
    for subject in look.subjects.values() {
        for guarded in subject.objects.iter().filter(|guarded| wanted.is(guarded)) {
            accounts.push(witness.account(subject, guarded).await?);
        }
    }
    Ok(accounts)
}

/// What the policies of the management cluster say of every release. What none of them selects is only looked at.
fn guards(managed: &Managed) -> Guards {
    let (entry, policies) = (Arc::clone(&managed.entry), Arc::clone(&managed.policies));
    let unguarded = Arc::new(Guard::default_warn());
    Box::new(move |release: &ReleaseName| {
        policies.decide(&entry, &release.namespace, &release.name).unwrap_or_else(|| Arc::clone(&unguarded))
    })
}

/// One object, whoever declares it.
fn unambiguous(look: &Look, wanted: &Named) -> anyhow::Result<()> {
    let objects = || look.subjects.values().flat_map(|subject| &subject.objects).filter(|guarded| wanted.is(guarded));
    let Some(first) = objects().next() else { bail!("no release declares {wanted}") };
    if objects().any(|other| other.key.identity() != first.key.identity()) {
        let mut names: Vec<String> = objects().map(|guarded| format!("{} ({})", guarded.key, guarded.key.gvk.api_version())).collect();
        names.sort();
        names.dedup();
        bail!("several objects are called so: {}; choose by -n NAMESPACE or KIND.GROUP/NAME", names.join(", "));
    }
    Ok(())
}
