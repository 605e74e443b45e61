//! The exchange of compressed gradients.
//!
//! Dense encodings are summed as an all-reduce sums f32 ([`sum`](crate::distributed)): each rank sums a slice of the gradient, and sends
//! 2 (W-1)/W of it. Slices and their sums are encoded, and loss weights go with the slices.
//!
//! Sparse gradients have few values in common, so their sums are not sparse. Each rank sends its values to all others, and all add them in
//! the order of ranks.
//!
//! Every rank decodes the same bytes in the same order, so all have the same sum, bit for bit.
//!
//! With error feedback, a rank keeps what it did not send and adds it to its next gradient. The owner of a slice also keeps what its
//! encoded sum lacks. So the sum of all that was applied, plus the residuals of all ranks, is the sum of all gradients.

use std::sync::Arc;

use grappa_run::{
    codecs::{Dense, Malformed, top_k},
    config::{Compress, CompressRate},
};
use tch::Tensor;

use super::gradient::{Exchange, LossWeights, Summed, Unsent, set_values, values_of};
use crate::{
    Error, Result,
    distributed::{LENGTH_BYTES, ProcessGroup, slices},
};

/// Bytes of the loss weights in a message.
const WEIGHT_BYTES: usize = 2 * size_of::<f64>();

/// The exchange of several processes that send encoded gradients.
#[derive(Debug)]
pub struct Compressed {
    group: Arc<ProcessGroup>,
    method: Method,
}

#[derive(Debug, Clone, Copy)]
enum Method {
    Dense(Dense),
    TopK(CompressRate),
}

impl Compressed {
    /// An exchange of gradients. `rate` is for [`Compress::TopK`].
    ///
    /// # Panics
    /// If there is no compression.
    pub fn new(compress: Compress, rate: CompressRate, group: Arc<ProcessGroup>) -> Self {
        let method = match compress {
            Compress::None => unreachable!("an all-reduce sums what is not compressed"),
            Compress::Bf16 => Method::Dense(Dense::Bf16),
            Compress::Int8 => Method::Dense(Dense::Int8),
            Compress::Lossless => Method::Dense(Dense::Lossless),
            Compress::TopK => Method::TopK(rate),
        };
        Self { group, method }
    }

    /// Sums a gradient slice by slice. `residual` becomes what is not sent.
    fn sum_slices(
        &self,
        codec: Dense,
        values: &mut [f32],
        residual: &mut Unsent,
        weights: LossWeights,
    ) -> Result<Summed> {
        let (own, slices) = (self.own(), slices(values.len(), self.ranks()));
        let own_slice = slices[own].clone();
        let mut messages = vec![to_bytes(weights).to_vec(); slices.len()];
        let mut part = vec![0.0; own_slice.len()];
        for (rank, slice) in slices.iter().enumerate().filter(|(rank, _)| *rank != own) {
            let (values, message) = (&values[slice.clone()], &mut messages[rank]);
            codec.encode(values, message);
            if let Some(residual) = residual {
                part.resize(slice.len(), 0.0);
                self.check(own, codec.decode(part_of(message), &mut part))?;
                subtract(values, &part, &mut residual[slice.clone()]);
            }
        }
        let lengths = codec.encoded_bytes(own_slice.len()).map(|bytes| {
            let mut lengths = vec![WEIGHT_BYTES + bytes; slices.len()];
            lengths[own] = WEIGHT_BYTES;
            lengths
        });
        let (received, sent_before) = self.all_to_all(&messages, lengths.as_deref())?;

        let mut sum = Vec::new();
        part.resize(own_slice.len(), 0.0);
        for (rank, message) in received.iter().enumerate() {
            match rank == own {
                true => part.copy_from_slice(&values[own_slice.clone()]),
                false => self.check(rank, codec.decode(part_of(message), &mut part))?,
            }
            add(&mut sum, &part);
        }
        let weights = sum_of_weights(&received);

        let mut encoded = Vec::new();
        codec.encode(&sum, &mut encoded);
        let lengths: Option<Vec<usize>> = slices.iter().map(|slice| codec.encoded_bytes(slice.len())).collect();
        let (received, sent) = self.all_to_all(&vec![encoded; slices.len()], lengths.as_deref())?;
        for (rank, (message, slice)) in received.iter().zip(slices).enumerate() {
            self.check(rank, codec.decode(message, &mut values[slice]))?;
        }
        if let Some(residual) = residual {
            subtract(&sum, &values[own_slice.clone()], &mut residual[own_slice]);
        }
        Ok(Summed { weights, sent_bytes: sent_before + sent, encoded_bytes: None })
    }

    /// Sums the `count` largest values of each rank. `residual` becomes what is not sent.
    fn sum_largest(
        &self,
        count: usize,
        values: &mut [f32],
        residual: &mut Unsent,
        weights: LossWeights,
    ) -> Result<Summed> {
        let (own, ranks) = (self.own(), self.ranks());
        let mut message = to_bytes(weights).to_vec();
        top_k::encode(values, count, &mut message);
        let lengths = vec![message.len(); ranks];
        let (received, sent_bytes) = self.all_to_all(&vec![message; ranks], Some(&lengths))?;
        let (mut sum, mut part) = (Vec::new(), vec![0.0; values.len()]);
        for (rank, message) in received.iter().enumerate() {
            self.check(rank, top_k::decode(part_of(message), count, &mut part))?;
            if let Some(residual) = residual.as_mut().filter(|_| rank == own) {
                subtract(values, &part, residual);
            }
            add(&mut sum, &part);
        }
        values.copy_from_slice(&sum);
        Ok(Summed { weights: sum_of_weights(&received), sent_bytes, encoded_bytes: None })
    }

    /// Sends a message to each rank. Returns the messages of all ranks, and the bytes that left this one.
    fn all_to_all(&self, messages: &[Vec<u8>], lengths: Option<&[usize]>) -> Result<(Vec<Vec<u8>>, u64)> {
        let length_bytes = if lengths.is_none() { LENGTH_BYTES } else { 0 };
        let to_others = messages.iter().enumerate().filter(|(rank, _)| *rank != self.own());
        let sent: usize = to_others.map(|(_, message)| length_bytes + message.len()).sum();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        Ok((self.group.all_to_all(&messages, lengths)?, sent as u64))
    }

    /// Adds to an error whose message it is.
    fn check(&self, rank: usize, decoded: std::result::Result<(), Malformed>) -> Result<()> {
        decoded.map_err(|malformed| {
            Error::Distributed(format!(
                "rank {} cannot decode the gradient of rank {rank}: {malformed}; the last checkpoint is intact: continue with --resume",
                self.own()
            ))
        })
    }

    fn own(&self) -> usize {
        self.group.place().rank as usize
    }

    fn ranks(&self) -> usize {
        self.group.place().ranks as usize
    }
}

impl Exchange for Compressed {
    fn sum(&self, gradient: &Tensor, weights: LossWeights, done: f64, residual: &mut Unsent) -> Result<Summed> {
        let mut values = values_of(gradient);
        if let Some(residual) = residual {
            values.iter_mut().zip(residual).for_each(|(value, residual)| *value += *residual);
        }
        let mut rest = residual.as_ref().map(|residual| vec![0.0; residual.len()]);
        let summed = match self.method {
            Method::Dense(codec) => self.sum_slices(codec, &mut values, &mut rest, weights)?,
            Method::TopK(rate) => {
                let count = top_k::count(rate.at(done), values.len());
                self.sum_largest(count, &mut values, &mut rest, weights)?
            }
        };
        set_values(gradient, &values);
        *residual = rest;
        Ok(summed)
    }

    fn has_feedback(&self) -> bool {
        match self.method {
            Method::Dense(codec) => codec.needs_feedback(),
            Method::TopK(_) => true,
        }
    }
}

fn to_bytes(weights: LossWeights) -> [u8; WEIGHT_BYTES] {
    let mut bytes = [0; WEIGHT_BYTES];
    let (factors, seeds) = bytes.split_at_mut(size_of::<f64>());
    factors.copy_from_slice(&weights.factors.to_le_bytes());
    seeds.copy_from_slice(&weights.seeds.to_le_bytes());
    bytes
}

/// The sums of the weights at the start of messages.
fn sum_of_weights(messages: &[Vec<u8>]) -> LossWeights {
    let mut sum = LossWeights::default();
    for message in messages {
        let (factors, seeds) = message[..WEIGHT_BYTES].split_at(size_of::<f64>());
        sum.factors += f64::from_le_bytes(factors.try_into().expect("bytes of a number"));
        sum.seeds += f64::from_le_bytes(seeds.try_into().expect("bytes of a number"));
    }
    sum
}

/// The encoded values behind the weights of a message.
fn part_of(message: &[u8]) -> &[u8] {
    &message[WEIGHT_BYTES..]
}

/// Adds a part to a sum, which has no values before the first part. So the sum of a single part has its bits.
fn add(sum: &mut Vec<f32>, part: &[f32]) {
    if sum.is_empty() {
        sum.extend(part);
        return;
    }
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}

/// Makes `rest` what `values` have more than `sent`.
fn subtract(values: &[f32], sent: &[f32], rest: &mut [f32]) {
    for ((rest, value), sent) in rest.iter_mut().zip(values).zip(sent) {
        *rest = value - sent;
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use tch::{Device, Kind};

    use super::*;
    use crate::distributed::{Hello, StoreServer, Waits, join};

    /// Calls `work` as each of several ranks, which are threads here. They talk to each other as processes do.
    fn as_ranks<T: Send>(ranks: u32, work: impl Fn(u32, Arc<ProcessGroup>) -> T + Sync) -> Vec<T> {
        let store = StoreServer::start().unwrap();
        let (work, store) = (&work, &store);
        let run = |rank| {
            let place = store.place(rank, ranks);
            let hello = Hello { same: Vec::new() };
            let group = Arc::new(join(place, hello, Waits::for_timeout(Duration::from_secs(60)), || false).unwrap());
            let done = work(rank, group.clone());
            group.finish().unwrap();
            done
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || run(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The gradient of a rank in a step: values of many magnitudes.
    fn gradient(parameters: usize, rank: u32, step: u32) -> Vec<f32> {
        let value = |i: usize| {
            let x = (i as f64 + 1.0) * f64::from(1 + rank) + f64::from(step) * 0.37;
            ((x * 1.7).sin().powi(5) * (x * 0.013).cos()) as f32
        };
        (0..parameters).map(value).collect()
    }

    fn weights(rank: u32, step: u32) -> LossWeights {
        LossWeights { factors: 0.1 * f64::from(rank + 1) + f64::from(step), seeds: f64::from(1000 * rank + step) }
    }

    /// Sums a gradient of each rank. Returns the sum, and what the exchange says.
    fn sum(exchange: &Compressed, values: &[f32], weights: LossWeights, residual: &mut Unsent) -> (Vec<f32>, Summed) {
        let room = Tensor::zeros([LossWeights::VALUES as i64], (Kind::Float, Device::Cpu));
        let gradient = Tensor::cat(&[Tensor::from_slice(values), room], 0);
        let summed = exchange.sum(&gradient, weights, 0.5, residual).unwrap();
        (values_of(&gradient), summed)
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    const STEPS: u32 = 4;

    #[test]
    fn all_ranks_get_the_same_sum_and_keep_what_it_lacks() {
        for (compress, ranks, parameters) in [
            (Compress::Bf16, 2, 5000),
            (Compress::Int8, 2, 5000),
            (Compress::Int8, 3, 5000),
            (Compress::Int8, 4, 3),
            (Compress::TopK, 3, 5000),
            (Compress::TopK, 2, 1),
            (Compress::Lossless, 3, 5000),
            (Compress::Lossless, 4, 2),
        ] {
            let context = format!("{compress} of {parameters} values, {ranks} ranks");
            let of_ranks = as_ranks(ranks, |rank, group| {
                let exchange = Compressed::new(compress, CompressRate::default(), group);
                let mut residual = exchange.has_feedback().then(|| vec![0.0; parameters]);
                let steps = (0..STEPS).map(|step| {
                    let values = gradient(parameters, rank, step);
                    sum(&exchange, &values, weights(rank, step), &mut residual)
                });
                (steps.collect::<Vec<_>>(), residual)
            });
            let mut lacking = vec![0.0; parameters];
            for step in 0..STEPS {
                let (applied, summed) = &of_ranks[0].0[step as usize];
                for (steps, _) in &of_ranks {
                    assert_eq!(bits(&steps[step as usize].0), bits(applied), "{context}");
                    assert_eq!(steps[step as usize].1.weights, summed.weights, "{context}");
                }
                let all: Vec<LossWeights> = (0..ranks).map(|rank| weights(rank, step)).collect();
                assert_eq!(summed.weights.factors, all.iter().map(|weights| weights.factors).sum::<f64>());
                assert_eq!(summed.weights.seeds, all.iter().map(|weights| weights.seeds).sum::<f64>());
                let gradients: Vec<_> = (0..ranks).map(|rank| gradient(parameters, rank, step)).collect();
                for (i, lacking) in lacking.iter_mut().enumerate() {
                    let all: f64 = gradients.iter().map(|gradient| f64::from(gradient[i])).sum();
                    *lacking += all - f64::from(applied[i]);
                }
            }
            for (_, residual) in &of_ranks {
                let residual = residual.iter().flatten();
                lacking.iter_mut().zip(residual).for_each(|(lacking, carried)| *lacking -= f64::from(*carried));
            }
            let most = if compress == Compress::Bf16 { 0.1 } else { 1e-5 };
            let worst = lacking.iter().fold(0.0_f64, |worst, lacking| worst.max(lacking.abs()));
            assert!(worst < most, "{context}: {worst}");
        }
    }

    #[test]
    fn without_loss_the_sum_has_the_bits_of_a_sum_in_the_order_of_ranks() {
        let sums = as_ranks(3, |rank, group| {
            let exchange = Compressed::new(Compress::Lossless, CompressRate::default(), group);
            sum(&exchange, &gradient(1000, rank, 0), weights(rank, 0), &mut None).0
        });
        let [first, second, third] = [0, 1, 2].map(|rank| gradient(1000, rank, 0));
        let expected: Vec<f32> = (0..1000).map(|i| first[i] + second[i] + third[i]).collect();
        assert_eq!(bits(&sums[2]), bits(&expected));
    }

    #[test]
    fn a_rank_sends_as_much_as_a_ring_and_the_largest_values_to_each_other_rank() {
        const PARAMETERS: usize = 4096;
        let sent = |compress| {
            let of_ranks = as_ranks(4, |rank, group| {
                let exchange = Compressed::new(compress, CompressRate::default(), group);
                let mut residual = exchange.has_feedback().then(|| vec![0.0; PARAMETERS]);
                let values = gradient(PARAMETERS, rank, 0);
                sum(&exchange, &values, weights(rank, 0), &mut residual).1.sent_bytes
            });
            assert!(of_ranks.iter().all(|sent| *sent == of_ranks[0]), "{of_ranks:?}");
            of_ranks[0]
        };
        // Two slices of a quarter to and from three ranks, and weights to each.
        assert_eq!(sent(Compress::Bf16), 3 * (2 * 2048 + 16));
        assert_eq!(sent(Compress::Int8), 3 * (2 * (1024 + 4) + 16));
        let largest =
            top_k::encoded_bytes(top_k::count(CompressRate::default().at(0.5), PARAMETERS), PARAMETERS) as u64;
        assert_eq!(sent(Compress::TopK), 3 * (largest + 16));
    }
}
