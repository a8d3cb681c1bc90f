//! Tries inputs until one fails or the effort is spent.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    Target,
    mutation::{self, Mutation},
};

/// Inputs between two looks at the clock.
const BATCH: u32 = 200;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub enum Effort {
    /// The same number of the same inputs every time.
    Fixed {
        /// Inputs, beside the corpus.
        inputs: u32,
    },
    /// New ones for a time.
    Timed(Duration),
}

/// Tries a target and answers how many inputs that were. The error has the smallest input found that fails, and where it is saved.
pub fn run(target: &Target, effort: Effort) -> Result<u64> {
    let files = Files::of(target.name)?;
    let corpus = files.corpus()?;
    for (path, input) in &corpus {
        files.note(input)?;
        (target.check)(input).with_context(|| format!("{} fails again", path.display()))?;
    }
    let mut seeds = (target.seeds)();
    seeds.extend(corpus.iter().map(|(_, input)| input.clone()));
    for (number, seed) in seeds.iter().enumerate() {
        (target.check)(seed).with_context(|| format!("seed {number}, unchanged"))?;
    }

    let (start, random) = match effort {
        Effort::Fixed { .. } => (Instant::now(), TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
        Effort::Timed(_) => (Instant::now(), TestRng::from_seed(RngAlgorithm::ChaCha, &rand::random::<[u8; 32]>())),
    };
    let config = Config { cases: BATCH, failure_persistence: None, max_shrink_iters: 3000, ..Config::default() };
    let mut source = TestRunner::new_with_rng(config.clone(), random);
    let strategy = (any::<Index>(), mutation::mutations());
    let mut tried = corpus.len() as u64 + seeds.len() as u64;
    loop {
        // A runner counts over all it is given, so each batch has one of its own.
        let outcome = TestRunner::new_with_rng(config.clone(), source.new_rng()).run(&strategy, |(seed, mutations)| {
            let input = build(target, &seeds, seed, &mutations);
            files.note(&input).map_err(|error| TestCaseError::fail(error.to_string()))?;
            (target.check)(&input).map_err(|error| TestCaseError::fail(format!("{error:#}")))
        });
        if let Err(error) = outcome {
            let TestError::Fail(why, (seed, mutations)) = error else { bail!("{}: {error}", target.name) };
            let input = build(target, &seeds, seed, &mutations);
            bail!("{}: {why}\nsaved as {}\n{}", target.name, files.save(&input)?.display(), excerpt(&input));
        }
        tried += u64::from(BATCH);
        let is_done = match effort {
            Effort::Fixed { inputs } => tried >= u64::from(inputs),
            Effort::Timed(time) => start.elapsed() >= time,
        };
        if is_done {
            return Ok(tried);
        }
    }
}

fn build(target: &Target, seeds: &[Vec<u8>], seed: Index, mutations: &[Mutation]) -> Vec<u8> {
    let mut input = seed.get(seeds).clone();
    mutation::apply(&mut input, mutations, seeds, target.words);
    input
}

fn excerpt(input: &[u8]) -> String {
    let shown = input.get(..input.len().min(2000)).unwrap_or_default();
    format!("{} bytes: {}", input.len(), shown.escape_ascii())
}

/// Where inputs are kept.
struct Files {
    corpus: PathBuf,
    scratch: PathBuf,
    /// Kept open: a file that is made anew thousands of times waits for the disk each time.
    current: File,
    name: &'static str,
}

impl Files {
    fn of(name: &'static str) -> Result<Self> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
        let scratch = crates.join("../../target/fuzz");
        fs::create_dir_all(&scratch).context("making target/fuzz")?;
        let current = File::create(scratch.join(format!("{name}.current"))).context("writing to target/fuzz")?;
        Ok(Self { corpus: crates.join("corpus").join(name), scratch, current, name })
    }

    /// The kept inputs by name of file; a target need not have any.
    fn corpus(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let Ok(entries) = fs::read_dir(&self.corpus) else { return Ok(Vec::new()) };
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.sort();
        paths.into_iter().map(|path| fs::read(&path).context("reading the corpus").map(|input| (path, input))).collect()
    }

    /// Leaves the input for whoever has to explain why the process is gone.
    fn note(&self, input: &[u8]) -> Result<()> {
        let mut file = &self.current;
        file.rewind().and_then(|()| file.write_all(input)).context("writing to target/fuzz")?;
        file.set_len(u64::try_from(input.len())?).context("writing to target/fuzz")
    }

    fn save(&self, input: &[u8]) -> Result<PathBuf> {
        let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(input).into();
        let path = self.scratch.join(format!("{}-{:08x}", self.name, u32::from_be_bytes([a, b, c, d])));
        fs::write(&path, input).context("writing to target/fuzz")?;
        Ok(path)
    }
}
