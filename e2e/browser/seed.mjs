// A workspace with something of everything, for the pictures and for axe.
import { scripted, settled, until } from './rig.mjs'

export async function seed(coordinator, api) {
  const runner = await coordinator.connect(api, 'studio')
  await coordinator.connect(api, 'build-02')
  const offline = await api('POST', '/workspace/runners', { label: 'old-laptop', capabilities: ['git'] })
  const submit = async (body) => (await api('POST', '/runs', body)).runId
  await api('PUT', '/secrets/k8s-token', { value: 'nor this', scope: 'workspace' })
  await api('POST', '/runtimes', { kind: 'local', id: 'build-machines', version: '1.0.0', description: 'Machines that join with a pool token', maxConcurrent: 8, memoryBudgetMb: 32768 })
  await api('POST', '/runtimes', { kind: 'k8s', id: 'gpu-cluster', version: '1.0.0', server: 'https://127.0.0.1:1', namespace: 'evals', authSecret: 'k8s-token', image: 'ghcr.io/everdict/job-runner:1.8.0', gpu: 1, maxConcurrent: 4 })
  const harness = { kind: 'command', id: 'note-agent', version: '1.0.0', description: 'Writes its task into a file.', command: "printf '%s\\n' {{task}} > {{file}}", params: { file: 'note.txt' }, trace: { kind: 'none' } }
  await api('POST', '/harnesses', harness)
  await api('POST', '/harnesses', { ...harness, version: '1.1.0', command: "printf '%s\\n' {{task}} | tr a-z A-Z > {{file}}", env: { TOKEN: { secretRef: 'DEPLOY_TOKEN' } } })
  await api('PUT', '/secrets/DEPLOY_TOKEN', { value: 'not shown anywhere', scope: 'workspace' })
  await api('POST', '/keys', { label: 'ci', scopes: ['write'] })

  const rich = await submit(
    scripted(
      'fix-login-redirect',
      [
        'say I read the failing test first, then the handler that it exercises.',
        'think model=claude-sonnet-4 input=4210 output=312 cacheRead=18200 cost=0.031 latency=2100ms',
        'run ls -la && cat README.md',
        'create src/redirect.ts export function target(next: string | null): string {\\n  return next ?? "/"\\n}',
        'think model=claude-sonnet-4 input=5120 output=540 cacheRead=22400 cost=0.042 latency=1700ms',
        'sleep 5200ms',
        'replace README.md hello hello,world',
        'run printf "\\033[1mTests\\033[0m\\n\\033[32m  ✓ keeps the query\\033[0m\\n\\033[32m  ✓ refuses another host\\033[0m\\n\\033[31m  ✗ handles an empty path\\033[0m\\n"; seq 1 120 | sed "s/^/\\x1b[90mcase\\x1b[0m /"',
        'run exit 3',
        'append README.md One more line',
        'say The redirect keeps its query now; a target on another host is refused.',
      ].join('\n'),
      { check: 'test -f src/redirect.ts && echo "2 checks passed"' },
    ),
  )
  const bad = await submit(scripted('rename-module', 'create a.txt one\nsay done', { check: 'echo "expected b.txt, which is not there" >&2; test -f b.txt' }))
  const timeout = await submit(scripted('migrate-database', 'say I begin with the schema.\nhang', { timeoutSec: 1 }))
  const done = [rich, bad, timeout]
  for (let i = 0; i < 6; i++) done.push(await submit(scripted(`regression-${i + 1}`, `think model=claude-haiku-4 input=${900 + i * 210} output=${40 + i * 9} cost=0.00${i + 1}\ncreate out.txt ${i}`, { check: `test ${i} -ne 4` })))
  await Promise.all(done.map((id) => settled(api, id)))
  const asking = await submit(scripted('drop-old-table', "create plan.txt Drop the table old_sessions\nask May I drop the table old_sessions? It has 12,408 rows.", {}))
  await until('the question', async () => (await api('GET', `/runs/${asking}`)).status === 'suspended')
  const before = await submit(scripted('deploy-to-staging', 'say hi', { approval: 'before-start' }))
  const running = await submit(scripted('long-refactoring', 'say I look at every package in turn.\nrun for i in $(seq 1 40); do echo "package $i"; sleep 0.2; done\nhang'))
  await until('it to run', async () => (await api('GET', `/runs/${running}`)).status === 'running')
  const queued = await submit({ ...scripted('train-on-gpu', 'say hi'), runtime: 'build-machines' })
  return { runner, offline, rich, bad, timeout, asking, before, running, queued }
}

/** Every page, by a name for its picture. */
export const pages = (s) => [
  ['home', '/'],
  ['runs', '/ui/runs'],
  ['runs-filtered', '/ui/runs?status=failed&since=24h'],
  ['run-trace', `/ui/runs/${s.rich}`],
  ['run-log', `/ui/runs/${s.rich}?tab=log`],
  ['run-diff', `/ui/runs/${s.rich}?tab=diff`],
  ['run-overview', `/ui/runs/${s.rich}?tab=overview`],
  ['run-failed', `/ui/runs/${s.timeout}`],
  ['run-asks', `/ui/runs/${s.asking}`],
  ['run-running', `/ui/runs/${s.running}`],
  ['run-queued', `/ui/runs/${s.queued}`],
  ['new-run', '/ui/new'],
  ['runtimes', '/ui/runtimes'],
  ['runtime-local', '/ui/runtimes/build-machines'],
  ['runtime-cluster', '/ui/runtimes/gpu-cluster'],
  ['runners', '/ui/runners'],
  ['harnesses', '/ui/harnesses'],
  ['harness', '/ui/harnesses/note-agent'],
  ['harness-builtin', '/ui/harnesses/scripted'],
  ['secrets', '/ui/secrets'],
  ['keys', '/ui/keys'],
  ['settings', '/ui/settings'],
  ['not-found', '/ui/nowhere'],
]

/** Waits until a page has what it loads. */
export async function ready(page) {
  await page.waitForSelector('main')
  await page.waitForFunction(() => document.querySelectorAll('.skeleton, .button .spin').length === 0, undefined, { timeout: 30_000 })
  await page.evaluate(() => document.fonts.ready)
}
