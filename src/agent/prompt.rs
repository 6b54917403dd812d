//! The order of a prompt's parts, fixed so that prompts of one run share the longest prefix:
//! instructions → demonstrations or memories → question.

use anyhow::bail;

use crate::engine::generate::Prompter;
use crate::memory::{self, Block, Content, Context, Placement};
use crate::record::{Message, Role, TaskView};

/// A prompt as messages and as tokens.
pub struct Prompt {
    pub messages: Vec<Message>,
    pub tokens: Vec<u32>,
}

/// The prompt of a task alone.
pub fn bare(task: &TaskView, backbone: &dyn Prompter) -> anyhow::Result<Prompt> {
    build(task, &[], backbone)
}

/// The prompt of a task behind demonstrations: each an earlier question with its reference solution as the reply.
pub fn with_demonstrations(
    task: &TaskView,
    demonstrations: &[(&str, &str)],
    backbone: &dyn Prompter,
) -> anyhow::Result<Prompt> {
    let turns: Vec<Message> = demonstrations
        .iter()
        .flat_map(|(question, solution)| {
            [Message::new(Role::User, *question), Message::new(Role::Assistant, *solution)]
        })
        .collect();
    build(task, &turns, backbone)
}

/// The tokens of a reply as it follows a prompt of this module: what the model would have to generate to say it, without
/// the token that ends its turn.
pub fn reply_tokens(reply: &str, backbone: &dyn Prompter) -> Vec<u32> {
    match backbone.has_template() {
        true => backbone.encode_reply(reply),
        // The labelled text of a model without a template puts a space before a reply.
        false if !reply.is_empty() => backbone.encode_reply(&format!(" {reply}")),
        false => Vec::new(),
    }
}

/// A prompt with what of a recalled context is in it.
pub struct Recalled {
    pub prompt: Prompt,
    /// Ids of the blocks shown, in the order shown.
    pub shown: Vec<String>,
    /// Blocks that did not fit the budget.
    pub dropped: u32,
    /// Tokens cut from the end of the last block left.
    pub cut_tokens: u64,
}

/// The prompt of a task with a recalled context. Blocks are left out, lowest score first and among equals the last shown
/// first, until the memory's part fits `max_memory_tokens`; the last text left is cut at its end, a last pair is left out
/// too.
pub fn with_context(
    task: &TaskView,
    context: &Context,
    max_memory_tokens: Option<usize>,
    backbone: &dyn Prompter,
) -> anyhow::Result<Recalled> {
    let mut blocks: Vec<&Block> = context.blocks.iter().collect();
    let mut shortened = None;
    let (mut dropped, mut cut_tokens) = (0, 0);
    if let Some(limit) = max_memory_tokens {
        while !blocks.is_empty() && memory_tokens(context, &blocks, backbone) > limit {
            if let [last] = blocks.as_slice()
                && let Some(shorter) = cut_last(context, last, limit, backbone)
            {
                let before = memory_tokens(context, &blocks, backbone);
                cut_tokens = (before - memory_tokens(context, &[&shorter], backbone)) as u64;
                shortened = Some(shorter);
                break;
            }
            let worst = blocks
                .iter()
                .enumerate()
                .min_by(|(i, left), (j, right)| left.score.total_cmp(&right.score).then(j.cmp(i)))
                .map_or(0, |(index, _)| index);
            blocks.remove(worst);
            dropped += 1;
        }
    }
    if let Some(shorter) = &shortened {
        blocks = vec![shorter];
    }
    let prompt = with_blocks(task, context, &blocks, backbone)?;
    Ok(Recalled { prompt, shown: blocks.iter().map(|block| block.id.clone()).collect(), dropped, cut_tokens })
}

fn with_blocks(
    task: &TaskView,
    context: &Context,
    blocks: &[&Block],
    backbone: &dyn Prompter,
) -> anyhow::Result<Prompt> {
    if blocks.is_empty() {
        return bare(task, backbone);
    }
    match context.placement {
        Placement::EarlierTurns => {
            let pairs = blocks
                .iter()
                .map(|block| match &block.content {
                    Content::Pair { question, reply } => Ok((question.as_str(), reply.as_str())),
                    Content::Text(_) => bail!("memory {} is a text and cannot stand as earlier turns", block.id),
                })
                .collect::<anyhow::Result<Vec<_>>>()?;
            with_demonstrations(task, &pairs, backbone)
        }
        Placement::BeforeQuestion => {
            let question = format!("{}\n\n{}", context.text(blocks), task.question);
            build(&TaskView { question, ..task.clone() }, &[], backbone)
        }
        Placement::AfterInstructions => {
            let instructions =
                task.system.iter().cloned().chain([context.text(blocks)]).collect::<Vec<_>>().join("\n\n");
            build(&TaskView { system: Some(instructions), ..task.clone() }, &[], backbone)
        }
    }
}

fn memory_tokens(context: &Context, blocks: &[&Block], backbone: &dyn Prompter) -> usize {
    backbone.encode(&context.text(blocks)).len()
}

/// The block with as much of its text as the limit leaves beside the preamble; `None` when nothing of it is left.
fn cut_last(context: &Context, block: &Block, limit: usize, backbone: &dyn Prompter) -> Option<Block> {
    let Content::Text(text) = &block.content else { return None };
    let with = |text: &str| Block { content: Content::Text(text.to_string()), ..block.clone() };
    let cut = memory::cut(text, limit, &|text| memory_tokens(context, &[&with(text)], backbone));
    Some(with(&cut)).filter(|block| !cut.trim().is_empty() && memory_tokens(context, &[block], backbone) <= limit)
}

fn build(task: &TaskView, earlier: &[Message], backbone: &dyn Prompter) -> anyhow::Result<Prompt> {
    let mut messages: Vec<Message> =
        task.system.iter().map(|system| Message::new(Role::System, system.as_str())).collect();
    messages.extend_from_slice(earlier);
    messages.push(Message::new(Role::User, task.question.as_str()));
    let tokens = memory::tokens(&messages, backbone)?;
    Ok(Prompt { messages, tokens })
}
