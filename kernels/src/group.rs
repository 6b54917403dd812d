//! Several devices that compute one model together: tensor parallelism.
//!
//! ```text
//! rank 0   its heads and columns ── partial sum ─┐                ┌─ the rest of the layer, on each
//! rank 1   its heads and columns ── partial sum ─┴─ ops::exchange ┴─ …
//! ```
//!
//! Every member holds a part of each large weight and of the cache, and runs the same step on a thread of its own. Where the
//! parts of a sum are wanted together, all give theirs to all and each adds them in the order of ranks, in `f32`
//! ([`crate::ops::exchange`]). So a result depends on how many members there are, and neither on their timing nor on the
//! library that carries numbers between GPUs; which reduces in an order of its own, and so is asked to gather only.
//!
//! Before each exchange the threads meet, and between GPUs once more when all have asked for it. So all take part or none does: a
//! member that fails leaves nobody waiting on a GPU, and no thread asks for memory, which the driver may wait for other GPUs with,
//! while a neighbour's half of an exchange is still to come.
//!
//! Source of the cuts: Shoeybi et al. 2019, "Megatron-LM", §3.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::cuda::{Links, connect};
use crate::device::{Backend, Device};
use crate::error::{Error, Result};
use crate::meeting::Meeting;

/// What a device is to others.
#[derive(Clone)]
pub(crate) enum Standing {
    Alone,
    /// The members of a group, in order of rank. The handle itself is the first one's.
    Group(Arc<[Device]>),
    Member(Arc<Member>),
}

/// One of a number of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// From 0.
    pub number: usize,
    pub count: usize,
}

impl Rank {
    /// The one of one.
    pub const ALONE: Rank = Rank { number: 0, count: 1 };

    pub fn is_first(self) -> bool {
        self.number == 0
    }

    /// This rank's run of so many items: runs follow each other and differ in length by one at most.
    pub fn share(self, items: usize) -> Range<usize> {
        self.number * items / self.count..(self.number + 1) * items / self.count
    }
}

/// A device's place in its group.
pub(crate) struct Member {
    rank: Rank,
    company: Arc<Company>,
    /// Exchanges over the host's memory that this member has taken part in.
    turn: AtomicUsize,
}

/// What the members of a group share.
struct Company {
    meeting: Meeting,
    /// What each rank gave, for two exchanges by turns: who writes for the one after the next has met those who read.
    given: Vec<[RwLock<Vec<f32>>; 2]>,
    /// Between GPUs; others exchange over the host's memory.
    links: Option<Links>,
}

impl Device {
    /// These devices as a group, of which each will hold a part of a model. The group itself is a device, which operations run
    /// on as on the first; a model that was loaded for it, and a cache made for it, are in parts.
    ///
    /// # Errors
    /// [`Error::Group`] for none, for one device twice, for processors beside GPUs, and for devices that are in a group;
    /// [`Error::Cuda`] when GPUs have no way to each other: without NCCL.
    pub fn group(devices: Vec<Device>) -> Result<Device> {
        let Some(first) = devices.first() else {
            return Err(Error::Group("of no devices".into()));
        };
        if devices.iter().any(|device| !matches!(device.standing(), Standing::Alone)) {
            return Err(Error::Group("one of the devices is in a group already".into()));
        }
        if devices.iter().any(|device| device.name() != first.name()) {
            let names: Vec<&str> = devices.iter().map(Device::name).collect();
            return Err(Error::Group(format!("of different kinds: {}", names.join(" and "))));
        }
        let is_twice = |(index, device): (usize, &Device)| devices[..index].iter().any(|other| other.is_same(device));
        if devices.iter().enumerate().any(is_twice) {
            return Err(Error::Group("each device holds one part, found one of them twice".into()));
        }
        let gpus = devices.iter().filter_map(|device| match device.backend() {
            Backend::Cuda(cuda) => Some(cuda),
            Backend::Cpu(_) => None,
        });
        let links = connect(&gpus.collect::<Vec<_>>())?;
        let count = devices.len();
        let given = (0..count).map(|_| Default::default()).collect();
        let company = Arc::new(Company { meeting: Meeting::new(count), given, links });
        let member = |(number, device): (usize, &Device)| {
            let (rank, company) = (Rank { number, count }, Arc::clone(&company));
            device.standing_as(Standing::Member(Arc::new(Member { rank, company, turn: AtomicUsize::new(0) })))
        };
        let members: Arc<[Device]> = devices.iter().enumerate().map(member).collect();
        Ok(first.standing_as(Standing::Group(members)))
    }

    /// Those of a group, in order of rank; of any other device none.
    pub fn members(&self) -> &[Device] {
        match self.standing() {
            Standing::Group(members) => members,
            Standing::Alone | Standing::Member(_) => &[],
        }
    }

    /// Whether it is neither a group nor a member of one.
    pub fn is_alone(&self) -> bool {
        matches!(self.standing(), Standing::Alone)
    }

    /// Which part of a model this device holds.
    pub fn rank(&self) -> Rank {
        self.member().map_or(Rank::ALONE, |member| member.rank)
    }

    pub(crate) fn member(&self) -> Option<&Member> {
        match self.standing() {
            Standing::Member(member) => Some(member),
            Standing::Alone | Standing::Group(_) => None,
        }
    }

    /// Runs a task for every member of this group, each on a thread of its own, the first on the caller's, with one of `shares`
    /// each. Tasks that end well have made the same exchanges.
    ///
    /// # Errors
    /// Of the task that failed first: others end with [`Error::Left`] at their next exchange.
    ///
    /// # Panics
    /// When a task does, once all have ended; when there is not one share a member.
    pub fn together<S: Send, E: Send>(
        &self,
        shares: Vec<S>,
        task: impl Fn(&Device, S) -> std::result::Result<(), E> + Sync,
    ) -> std::result::Result<(), E> {
        let members = self.members();
        assert_eq!(shares.len(), members.len(), "one share a member");
        let Some(first) = members.first().and_then(Device::member) else { return Ok(()) };
        first.company.meeting.begin();
        members.iter().filter_map(Device::member).for_each(|member| member.turn.store(0, Ordering::Relaxed));
        let run = |device: &Device, share: S| {
            let mut leaving = Leaving { device, has_failed: true };
            let outcome = task(device, share);
            leaving.has_failed = outcome.is_err();
            outcome
        };
        let mut outcomes: Vec<std::result::Result<(), E>> = std::thread::scope(|scope| {
            let mut pairs = members.iter().zip(shares);
            let own = pairs.next();
            let others: Vec<_> = pairs.map(|(device, share)| scope.spawn(|| run(device, share))).collect();
            let own = own.map(|(device, share)| run(device, share));
            let others =
                others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            own.into_iter().chain(others).collect()
        });
        match first.company.meeting.failed() {
            Some(rank) => outcomes.swap_remove(rank),
            None => Ok(()),
        }
    }
}

/// Tells the others when a member's task ends without having succeeded.
struct Leaving<'a> {
    device: &'a Device,
    has_failed: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let (true, Some(member)) = (self.has_failed, self.device.member()) {
            member.fail();
            // A GPU that does not answer will not bring its part of what is on its way: those that wait for it there are
            // let go.
            if self.device.synchronize().is_err() {
                member.cut_links();
            }
        }
    }
}

impl Member {
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn links(&self) -> Option<&Links> {
        self.company.links.as_ref()
    }

    /// Waits for the other members.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn meet(&self) -> Result<()> {
        self.company.meeting.meet()
    }

    fn fail(&self) {
        self.company.meeting.fail(self.rank.number);
    }

    pub(crate) fn cut_links(&self) {
        if let Some(links) = &self.company.links {
            links.cut();
        }
    }

    /// Gives the other members these values and waits for theirs.
    ///
    /// # Errors
    /// [`Error::Left`].
    pub(crate) fn give(&self, own: &[f32]) -> Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let slot = &self.company.given[self.rank.number][turn % 2];
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        slot.clear();
        slot.extend_from_slice(own);
        drop(slot);
        self.company.meeting.meet()
    }

    /// Reads what each member gave last, in order of rank. Everyone has given as often.
    pub(crate) fn read(&self, mut each: impl FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        let turn = self.turn.load(Ordering::Relaxed).wrapping_sub(1);
        let slots = self.company.given.iter().map(|slots| &slots[turn % 2]).enumerate();
        slots.into_iter().try_for_each(|(rank, slot)| each(rank, &slot.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(count: usize) -> Device {
        Device::group((0..count).map(|_| Device::cpu(1)).collect()).unwrap()
    }

    #[test]
    fn shares_follow_each_other_and_cover_everything() {
        for (items, count) in [(8, 2), (7, 3), (3, 4), (0, 2)] {
            let mut end = 0;
            for number in 0..count {
                let share = Rank { number, count }.share(items);
                assert_eq!(share.start, end);
                assert!(share.len() <= items.div_ceil(count) && share.len() >= items / count);
                end = share.end;
            }
            assert_eq!(end, items);
        }
        assert_eq!(Rank::ALONE.share(5), 0..5);
    }

    #[test]
    fn devices_that_cannot_be_a_group_are_refused_with_a_reason() {
        let device = Device::cpu(1);
        let refused = |devices: Vec<Device>| Device::group(devices).map(|_| ()).unwrap_err().to_string();
        assert!(refused(Vec::new()).contains("no devices"));
        assert!(refused(vec![device.clone(), device.clone()]).contains("twice"));
        assert!(refused(vec![group(2), device.clone()]).contains("in a group already"));
        assert!(refused(vec![device, group(2).members()[1].clone()]).contains("in a group already"));
        if let Ok(gpu) = Device::emulated(0) {
            assert!(refused(vec![gpu, Device::cpu(1)]).contains("cuda and cpu"));
        }
    }

    #[test]
    fn a_group_is_a_device_and_knows_its_members() {
        let group = group(3);
        assert_eq!((group.name(), group.rank(), group.members().len()), ("cpu", Rank::ALONE, 3));
        let ranks: Vec<Rank> = group.members().iter().map(Device::rank).collect();
        assert_eq!(ranks, [0, 1, 2].map(|number| Rank { number, count: 3 }));
        assert!(group.members()[1].members().is_empty());
        assert_eq!(group.free_memory().unwrap(), None);
        group.synchronize().unwrap();
    }

    /// Many exchanges, by threads that are early and late by turns.
    #[test]
    fn everyone_reads_what_everyone_gave() {
        let group = group(3);
        for _ in 0..2 {
            let task = |device: &Device, own: f32| -> Result<()> {
                let member = device.member().unwrap();
                for round in 0..100 {
                    if (round + member.rank().number).is_multiple_of(7) {
                        std::thread::yield_now();
                    }
                    member.give(&[own + round as f32])?;
                    let mut found = Vec::new();
                    member.read(|rank, part| {
                        found.push((rank, part[0]));
                        Ok(())
                    })?;
                    let expected: Vec<(usize, f32)> =
                        (0..3).map(|rank| (rank, rank as f32 * 1000.0 + round as f32)).collect();
                    assert_eq!(found, expected);
                }
                Ok(())
            };
            group.together(vec![0.0, 1000.0, 2000.0], task).unwrap();
        }
    }

    #[test]
    fn the_error_is_that_of_the_member_that_failed() {
        let group = group(3);
        let task = |device: &Device, (): ()| match device.rank().number {
            2 => Err("out of memory".to_string()),
            _ => device.member().unwrap().give(&[1.0]).map_err(|error| error.to_string()),
        };
        assert_eq!(group.together(vec![(); 3], task).unwrap_err(), "out of memory");
        // The next step finds everyone there again.
        group.together(vec![(); 3], |device: &Device, (): ()| device.member().unwrap().give(&[1.0])).unwrap();
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn a_panic_of_a_member_reaches_the_caller() {
        let task = |device: &Device, (): ()| {
            assert!(device.rank().is_first(), "on purpose");
            device.member().unwrap().give(&[1.0])
        };
        let _ = group(2).together(vec![(); 2], task);
    }
}
