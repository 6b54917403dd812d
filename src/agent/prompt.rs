//! The order of a prompt's parts, fixed so that prompts of one run share the longest prefix:
//! instructions → demonstrations or memories → question.

use crate::engine::generate::Prompter;
use crate::engine::template::ChatMessage;
use crate::memory::{Block, Context, Placement};
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

/// The prompt of a task with a recalled context, and the ids shown. Blocks are left out, lowest score first and among
/// equals the last shown first, until the memory's part fits `max_memory_tokens`; the count left out is returned.
pub fn with_context(
    task: &TaskView,
    context: &Context,
    max_memory_tokens: Option<usize>,
    backbone: &dyn Prompter,
) -> anyhow::Result<(Prompt, Vec<String>, u32)> {
    let mut blocks: Vec<&Block> = context.blocks.iter().collect();
    let mut dropped = 0;
    if let Some(limit) = max_memory_tokens {
        while !blocks.is_empty() && memory_tokens(context, &blocks, backbone) > limit {
            let worst = blocks
                .iter()
                .enumerate()
                .min_by(|(i, left), (j, right)| left.score.total_cmp(&right.score).then(j.cmp(i)))
                .map_or(0, |(index, _)| index);
            blocks.remove(worst);
            dropped += 1;
        }
    }
    if blocks.is_empty() {
        return Ok((bare(task, backbone)?, Vec::new(), dropped));
    }
    let shown = blocks.iter().map(|block| block.id.clone()).collect();
    let prompt = match context.placement {
        Placement::EarlierTurns => {
            let pairs: Vec<(&str, &str)> =
                blocks.iter().map(|block| (block.question.as_str(), block.reply.as_str())).collect();
            with_demonstrations(task, &pairs, backbone)?
        }
        Placement::BeforeQuestion => {
            let question = format!("{}\n\n{}", before_question(context, &blocks), task.question);
            build(&TaskView { question, ..task.clone() }, &[], backbone)?
        }
    };
    Ok((prompt, shown, dropped))
}

fn memory_tokens(context: &Context, blocks: &[&Block], backbone: &dyn Prompter) -> usize {
    backbone.encode(&before_question(context, blocks)).len()
}

fn before_question(context: &Context, blocks: &[&Block]) -> String {
    let mut text = context.preamble.clone();
    for block in blocks {
        text.push_str(&format!("\n\nQuestion: {}\nReply: {}", block.question, block.reply));
    }
    text
}

fn build(task: &TaskView, earlier: &[Message], backbone: &dyn Prompter) -> anyhow::Result<Prompt> {
    let mut messages: Vec<Message> =
        task.system.iter().map(|system| Message::new(Role::System, system.as_str())).collect();
    messages.extend_from_slice(earlier);
    messages.push(Message::new(Role::User, task.question.as_str()));
    let tokens = tokens(&messages, backbone)?;
    Ok(Prompt { messages, tokens })
}

/// The tokens that ask for the reply to a dialogue. A model without a chat template gets plain labelled text.
pub fn tokens(messages: &[Message], backbone: &dyn Prompter) -> anyhow::Result<Vec<u32>> {
    if backbone.has_template() {
        let chat: Vec<ChatMessage> =
            messages.iter().map(|message| ChatMessage::new(message.role.as_str(), &message.content)).collect();
        return backbone.render(&chat);
    }
    let mut text = String::new();
    for message in messages {
        match message.role {
            Role::System => text.push_str(&format!("{}\n\n", message.content)),
            Role::User => text.push_str(&format!("Question: {}\nReply:", message.content)),
            Role::Assistant => text.push_str(&format!(" {}\n\n", message.content)),
        }
    }
    Ok(backbone.encode(&text))
}
