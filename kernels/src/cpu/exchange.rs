//! Exchanges between processors, which are parts of one: for tests, and for what a group of GPUs is compared with.

use crate::error::{Error, Result};
use crate::group::{Member, Rank};

pub(crate) fn sum(member: &Member, x: &mut [f32]) -> Result<()> {
    member.give(x)?;
    member.read(|rank, part| {
        check(part.len(), x.len())?;
        match rank {
            0 => x.copy_from_slice(part),
            _ => x.iter_mut().zip(part).for_each(|(x, part)| *x += part),
        }
        Ok(())
    })
}

pub(crate) fn columns(member: &Member, out: &mut [f32], x: &[f32], width: usize) -> Result<()> {
    let Rank { number, count } = member.rank();
    member.give(x)?;
    if number != 0 {
        return Ok(());
    }
    member.read(|number, part| {
        let share = Rank { number, count }.share(width);
        check(part.len() * width, out.len() * share.len())?;
        let rows = out.chunks_exact_mut(width).zip(part.chunks_exact(share.len().max(1)));
        rows.for_each(|(out, part)| out[share.clone()].copy_from_slice(part));
        Ok(())
    })
}

fn check(found: usize, expected: usize) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::Group(format!("a member gave {found} values, expected {expected}: our bug"))),
    }
}
