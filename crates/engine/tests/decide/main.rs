//! Plays scripted facts against the decision, step by step, and compares the steps as text.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod contests;
#[cfg(test)]
mod coupled;
#[cfg(test)]
mod drift;
#[cfg(test)]
mod first_sight;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod guards;
#[cfg(test)]
mod inexact;
#[cfg(test)]
mod missing;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod renames;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod world;
