// KafkaJS as a program: client.js BOOTSTRAP COMMAND JSON
//
// A command prints its answer as one line of JSON.  `member` runs until SIGTERM and prints a line
// per event, as tests/e2e/member.py does.  Codecs are pure JavaScript or Node's own.

'use strict'

const zlib = require('node:zlib')
const lz4 = require('lz4js')
const snappy = require('snappyjs')
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } =
  require('kafkajs')

const COMPRESSIONS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// Other clients write snappy in frames of their own: a magic word, two versions, sized blocks.
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])
const XERIAL_HEADER_SIZE = 16

const uncompressSnappy = data => {
  if (!data.subarray(0, XERIAL_MAGIC.length).equals(XERIAL_MAGIC)) return snappy.uncompress(data)
  const blocks = []
  for (let position = XERIAL_HEADER_SIZE; position < data.length;) {
    const size = data.readInt32BE(position)
    blocks.push(snappy.uncompress(data.subarray(position + 4, position + 4 + size)))
    position += 4 + size
  }
  return Buffer.concat(blocks)
}

// lz4js looks for the checksums of blocks where they are not, so frames are taken apart here.
const LZ4_HEADER_SIZE = 7
const LZ4_BLOCK_SUMS = 0x10
const LZ4_CONTENT_SIZE = 0x08
const LZ4_STORED = 0x80000000

const uncompressLz4 = data => {
  const flags = data[4]
  const blockSizeMax = 1 << (8 + 2 * ((data[5] >> 4) & 7))
  const blocks = []
  let position = LZ4_HEADER_SIZE + (flags & LZ4_CONTENT_SIZE ? 8 : 0)
  for (let word; (word = data.readUInt32LE(position)) !== 0;) {
    const start = position + 4
    const size = (word & ~LZ4_STORED) >>> 0
    if (word & LZ4_STORED) {
      blocks.push(data.subarray(start, start + size))
    } else {
      const block = Buffer.alloc(blockSizeMax)
      blocks.push(block.subarray(0, lz4.decompressBlock(data, block, start, size, 0)))
    }
    position = start + size + (flags & LZ4_BLOCK_SUMS ? 4 : 0)
  }
  return Buffer.concat(blocks)
}

const codec = (compress, decompress) => () => ({
  compress: async encoder => Buffer.from(compress(encoder.buffer)),
  decompress: async data => Buffer.from(decompress(data)),
})

CompressionCodecs[CompressionTypes.Snappy] = codec(snappy.compress, uncompressSnappy)
CompressionCodecs[CompressionTypes.LZ4] = codec(lz4.compress, uncompressLz4)
CompressionCodecs[CompressionTypes.ZSTD] = codec(zlib.zstdCompressSync, zlib.zstdDecompressSync)

const say = value => process.stdout.write(JSON.stringify(value) + '\n')

const withClient = async (client, use) => {
  await client.connect()
  try {
    return await use(client)
  } finally {
    await client.disconnect()
  }
}

const headerPairs = headers =>
  Object.entries(headers || {}).map(([name, value]) => [name, value.toString()])

const describe = (partition, message) => ({
  value: message.value.toString(),
  key: message.key === null ? null : message.key.toString(),
  headers: headerPairs(message.headers),
  partition,
  offset: Number(message.offset),
  timestamp: Number(message.timestamp),
})

const groupConsumer = (kafka, { group, sessionTimeout, heartbeatInterval }) =>
  kafka.consumer({ groupId: group, sessionTimeout, heartbeatInterval, maxWaitTimeInMs: 100 })

// `start` is called once the consumer runs; messages that are not `wanted` may come before that
const read = (kafka, topic, count, options, wanted, start) =>
  withClient(groupConsumer(kafka, options), async consumer => {
    await consumer.subscribe({ topic, fromBeginning: true })
    const found = []
    await new Promise((resolve, reject) => {
      const eachMessage = async each => {
        if (wanted(each)) found.push(describe(each.partition, each.message))
        if (found.length >= count) resolve()
      }
      consumer.on(consumer.events.CRASH, ({ payload }) => {
        if (!payload.restart) reject(payload.error) // else it was told to try again, and does
      })
      consumer.run({ eachMessage }).then(() => start(consumer)).catch(reject)
    })
    return found.slice(0, count)
  })

const commands = {
  createTopic: (kafka, { topic, partitions, configs }) =>
    withClient(kafka.admin(), admin =>
      admin.createTopics({
        topics: [{
          topic,
          numPartitions: partitions,
          configEntries: Object.entries(configs).map(([name, value]) => ({ name, value })),
        }],
      })),

  partitionCount: (kafka, { topic }) =>
    withClient(kafka.admin(), async admin => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      return topics[0].partitions.length
    }),

  produce: (kafka, { topic, messages, compression, idempotent }) =>
    withClient(kafka.producer({ idempotent }), async producer => {
      await producer.send({ topic, messages, acks: -1, compression: COMPRESSIONS[compression] })
      return messages.length
    }),

  consume: (kafka, { topic, count, ...options }) =>
    read(kafka, topic, count, options, () => true, () => {}),

  readFrom: (kafka, { topic, count, offset, ...options }) =>
    read(kafka, topic, count, options, ({ partition, message }) =>
      partition === 0 && Number(message.offset) >= Number(offset),
    consumer => consumer.seek({ topic, partition: 0, offset })),

  offsetForTime: (kafka, { topic, timestamp }) =>
    withClient(kafka.admin(), async admin => {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
      const ends = await admin.fetchTopicOffsets(topic)
      const first = list => list.find(({ partition }) => partition === 0)
      return { offset: first(found).offset, end: first(ends).high }
    }),

  configs: (kafka, { topic }) =>
    withClient(kafka.admin(), async admin => {
      const { resources } = await admin.describeConfigs({
        includeSynonyms: false,
        resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }],
      })
      return Object.fromEntries(
        resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]))
    }),

  alterConfig: (kafka, { topic, key, value }) =>
    withClient(kafka.admin(), async admin => {
      await admin.alterConfigs({
        validateOnly: false,
        resources: [{
          type: ConfigResourceTypes.TOPIC,
          name: topic,
          configEntries: [{ name: key, value }],
        }],
      })
      return true
    }),

  member: async (kafka, { topic, autoCommitInterval, ...options }) => {
    const consumer = groupConsumer(kafka, options)
    const stopped = new Promise(resolve => process.on('SIGTERM', resolve))
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
      say({ assigned: payload.memberAssignment[topic] || [] }))
    consumer.on(consumer.events.REBALANCING, () => say({ assigned: [] }))
    return withClient(consumer, async () => {
      await consumer.subscribe({ topic, fromBeginning: true })
      await consumer.run({
        autoCommitInterval,
        eachMessage: async ({ partition, message }) => {
          const { value, offset } = describe(partition, message)
          say({ record: { value, partition, offset } })
        },
      })
      await stopped
      return { assigned: [] }
    })
  },
}

const main = async ([bootstrap, command, options]) => {
  const kafka = new Kafka({
    clientId: 'quipu-tests',
    brokers: bootstrap.split(','),
    logLevel: logLevel.ERROR,
    retry: { initialRetryTime: 50, retries: 8 },
  })
  say(await commands[command](kafka, JSON.parse(options)))
}

main(process.argv.slice(2)).catch(error => {
  console.error(error)
  process.exit(1)
})
