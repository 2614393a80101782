// Writes src/data/schema.ts, the types of the API, from the OpenAPI document of a
// coordinator: node scripts/api.mjs URL|FILE. With --check it writes nothing and
// fails when the file is not what it would write.
import { readFile, writeFile } from 'node:fs/promises'
import openapi, { astToString } from 'openapi-typescript'

const target = new URL('../src/data/schema.ts', import.meta.url)
const check = process.argv.includes('--check')
const source = process.argv.slice(2).find((a) => a !== '--check')
if (!source) throw new Error('usage: node scripts/api.mjs [--check] URL|FILE   (of an /openapi.json)')

const text = /^https?:/.test(source) ? await (await fetch(source)).text() : await readFile(source, 'utf8')
const document = JSON.parse(text)
// The page calls routes by their paths; what it needs types for are the documents.
document.paths = {}
document.info.version = ''
document.components.schemas.Time = { type: 'string', description: 'an instant: RFC 3339, UTC, milliseconds' }
const types = `// Made by scripts/api.mjs from the coordinator's OpenAPI document. Do not edit.\n\n${astToString(await openapi(document))}`

if (!check) {
  await writeFile(target, types)
} else if ((await readFile(target, 'utf8').catch(() => '')) !== types) {
  console.error('src/data/schema.ts is not what the coordinator serves: npm run api -- URL/openapi.json writes it anew')
  process.exit(1)
}
