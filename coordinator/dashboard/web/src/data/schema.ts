// Made by scripts/api.mjs from the coordinator's OpenAPI document. Do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        Account: {
            subject: string;
            workspace: string;
        };
        Answered: {
            approved: boolean;
            at: components["schemas"]["Time"];
            by?: string;
            comment?: string;
            id: string;
            question: string;
        };
        Attempt: {
            answers?: components["schemas"]["Answered"][];
            /** Format: int64 */
            attempt: number;
            endedAt?: components["schemas"]["Time"];
            handedOut?: components["schemas"]["HandedOut"];
            lateAt?: components["schemas"]["Time"];
            leasedAt?: components["schemas"]["Time"];
            message?: string;
            outcome: string;
            result?: components["schemas"]["CaseResult"];
            runner?: string;
            runnerLabel?: string;
            startedAt?: components["schemas"]["Time"];
        };
        Case: {
            /**
             * @description before-start parks the run until a person approves it
             * @enum {string}
             */
            approval?: "before-start";
            /** @description what the agent starts with */
            env: components["schemas"]["EnvSpec"];
            /** @description the answer that graders such as answer-match compare with */
            expected?: string;
            /** @description what judges the outcome; none: no verdict */
            graders?: components["schemas"]["GraderSpec"][];
            /** @description a name for the case: 1 to 200 printable characters without / or \ */
            id: string;
            /** @description how long it may be silent; 0 (default): as long as it runs */
            idleTimeoutSec?: number;
            /** @description the container image to run in; empty: the runner's default sandbox */
            image?: string;
            /** @description named steps that a judge can look for */
            milestones?: components["schemas"]["Milestone"][];
            /** @description the network that the agent may use, such as {"mode": "none"}; a runner that cannot enforce it refuses the case */
            network?: components["schemas"]["Network"];
            /** @description a wish about the machine */
            placement?: components["schemas"]["Placement"];
            /** @description what the case needs */
            resources?: components["schemas"]["Resources"];
            /** @description labels of one's own */
            tags?: string[];
            /** @description what the agent has to do */
            task: string;
            /** @description how long the agent may run; default 1800 */
            timeoutSec?: number;
        };
        CasePlacement: {
            /** Format: double */
            ageSeconds?: number;
            blockedReason?: string;
            events: components["schemas"]["PlacementEvent"][];
            node?: string;
            phase: string;
            queueDeadline?: components["schemas"]["Time"];
            unit?: string;
        };
        CaseResult: {
            caseId: string;
            evidence?: components["schemas"]["Evidence"];
            evidenceVersion: number;
            execution?: components["schemas"]["Execution"];
            failure?: components["schemas"]["Failure"];
            harness: string;
            provenance?: components["schemas"]["Provenance"];
            scores: components["schemas"]["Score"][];
            snapshot: components["schemas"]["Snapshot"];
            timing?: components["schemas"]["Timing"];
            trace: components["schemas"]["TraceEvent"][];
            traceTruncated?: boolean;
            trial?: number;
            usage?: components["schemas"]["Usage"];
        };
        CommandTrace: {
            /**
             * @description none: stdout is the answer; file: path holds trace events; else stdout is that program's stream
             * @enum {string}
             */
            kind: "none" | "file" | "claude-code" | "codex";
            /** @description of kind file: relative to the working directory; default everdict-trace.json */
            path?: string;
        };
        Constraint: {
            /** @description such as ${attr.kernel.name} */
            attribute: string;
            /** @description default = */
            operator?: string;
            /** @description what the attribute is compared with */
            value?: string;
        };
        Cost: {
            cacheReadTokens?: number;
            cacheWriteTokens?: number;
            inputTokens?: number;
            outputTokens?: number;
            reasoningTokens?: number;
            usd?: number;
        };
        Decider: {
            graderId: string;
            metric: string;
            pass: boolean;
        };
        Decision: {
            /** @description what the run, and whoever reads its record, is told */
            comment?: string;
        };
        Deleted: {
            deleted: boolean;
            id: string;
            version: string;
            workspace: string;
        };
        EnvSpec: {
            /** @description of a prompt: what the agent is told before its task */
            context?: string;
            /**
             * @description repo: a repository to work in; prompt: a question to answer
             * @enum {string}
             */
            kind: "repo" | "prompt";
            /** @description of a repo: command lines that prepare it */
            setup?: string[];
            /** @description of a repo: where its files come from */
            source?: components["schemas"]["RepoSource"];
        };
        Evidence: {
            /** Format: int64 */
            diffBytes: number;
            gaps?: components["schemas"]["Gap"][];
            /** Format: int64 */
            logBytes: number;
            /** Format: int64 */
            redactions?: number;
            /** Format: int64 */
            traceEvents: number;
        };
        Execution: {
            actsAsYou?: boolean;
            arch?: string;
            cpuMs?: number;
            defaultLimits?: string[];
            driver?: string;
            emulated?: boolean;
            enclosure?: string;
            harnessPath?: string;
            harnessVersion?: string;
            image?: string;
            imageDigest?: string;
            limits?: {
                [key: string]: unknown;
            };
            notes?: string[];
            os: string;
            osResolved: string;
            peakMemoryMb?: number;
            platform?: string;
        };
        Failure: {
            class: string;
            code: string;
            exitCode?: number;
            hint?: string;
            limit?: components["schemas"]["Limit"];
            logTail?: string;
            message: string;
            reason: string;
            retryable: boolean;
            runnerId?: string;
            signal?: string;
            stage: string;
        };
        Gap: {
            /** Format: int64 */
            bytes: number;
            channel: string;
            /** Format: int64 */
            offset: number;
            reason: string;
        };
        GraderSpec: {
            /**
             * @description how much its scores count in the verdict
             * @enum {string}
             */
            authority?: "ground_truth" | "objective" | "judge" | "observational";
            /** @description an object that this grader knows; keys that it does not know are refused */
            config?: unknown;
            /**
             * @description what is better
             * @enum {string}
             */
            direction?: "higher_is_better" | "lower_is_better" | "neutral";
            /** @description a grader: tests-pass, command, script-score, script, reward-file, answer-match, text-metric, steps, cost or latency */
            id: string;
            /** @description the same for single metrics of it */
            metrics?: components["schemas"]["MetricSpec"][];
        };
        HandedOut: {
            by?: string;
            unit?: string;
            until: components["schemas"]["Time"];
        };
        HarnessEntry: {
            category?: string;
            createdAt: components["schemas"]["Time"];
            createdBy?: string;
            id: string;
            kind?: string;
            latestCreatedBy?: string;
            latestVersion: string;
            owner: string;
            private?: boolean;
            templateId?: string;
            templateVersion?: string;
            updatedAt: components["schemas"]["Time"];
            versionCount: number;
            versionTags?: {
                [key: string]: string[];
            };
            versions: string[];
        };
        HarnessInstance: {
            /** @description for people */
            description?: string;
            /** @description its name */
            id: string;
            /** @description what is laid over the template */
            overrides?: components["schemas"]["InstanceOverrides"];
            /** @description values for the template's slots: image, model */
            pins?: {
                [key: string]: string;
            };
            /** @description the template; its version latest is resolved when the instance is registered */
            template: components["schemas"]["HarnessRef"];
            /** @description a version never changes once it is registered; not latest */
            version: string;
        };
        HarnessRef: {
            /** @description a registered harness, or one that is built in: scripted, claude-code, codex */
            id: string;
            /** @description parameters, laid over those of the harness */
            params?: {
                [key: string]: string;
            };
            /** @description a version, or latest (default) */
            version?: string;
        };
        HarnessSpec: {
            /**
             * @description of kind process: which one; default the id
             * @enum {string}
             */
            adapter?: "scripted" | "claude-code" | "codex";
            /** @description of a template: what kind of agent it is */
            category?: string;
            /** @description of kind command: the command line, with {{task}}, {{model}}, {{run_id}} and the params by name, such as "my-agent {{task}}" */
            command?: string;
            /** @description for people */
            description?: string;
            /** @description variables: text, or a reference to a secret */
            env?: {
                [key: string]: string | components["schemas"]["SecretRef"];
            };
            /** @description its name */
            id: string;
            /** @description the container image that it runs in */
            image?: string;
            /**
             * @description command: a command line; process: an adapter built into every runner
             * @enum {string}
             */
            kind: "command" | "process";
            /** @description what {{model}} becomes */
            model?: string | components["schemas"]["ModelReference"];
            /** @description defaults of the placeholders */
            params?: {
                [key: string]: string;
            };
            /** @description what it needs */
            resources?: components["schemas"]["Resources"];
            /** @description command lines that run before it */
            setup?: string[];
            /** @description where a command leaves its trace */
            trace?: components["schemas"]["CommandTrace"];
            /** @description a version never changes once it is registered; not latest */
            version: string;
            /** @description where it starts, relative to the workspace */
            workDir?: string;
        };
        Health: {
            ok: boolean;
        };
        InspectCapacity: {
            free: number;
            total: number;
            used: number;
        };
        InspectCluster: {
            name?: string;
            namespace?: string;
            version?: string;
        };
        InspectNode: {
            address?: string;
            agentVersion?: string;
            arch?: string;
            containerRuntime?: string;
            /** Format: int64 */
            cpuTotal?: number;
            /** Format: int64 */
            gpuTotal?: number;
            kernel?: string;
            /** Format: int64 */
            memoryMbTotal?: number;
            name: string;
            os?: string;
            ready: boolean;
            schedulable: boolean;
            status: string;
        };
        InspectNodes: {
            items: components["schemas"]["InspectNode"][];
            ready: number;
            total: number;
        };
        InspectUnit: {
            id: string;
            name: string;
            namespace?: string;
            node?: string;
            ownerKind?: string;
            role: string;
            status: string;
        };
        Inspection: {
            capacity?: components["schemas"]["InspectCapacity"];
            cluster?: components["schemas"]["InspectCluster"];
            detail: string;
            kind: string;
            nodes?: components["schemas"]["InspectNodes"];
            reachable: boolean;
            reason?: string;
            warnings: string[];
            workload?: components["schemas"]["InspectUnit"][];
        };
        InstanceOverrides: {
            /** @description laid over the template's */
            env?: {
                [key: string]: string | components["schemas"]["SecretRef"];
            };
            /** @description laid over the template's */
            params?: {
                [key: string]: string;
            };
            /** @description in place of the template's */
            resources?: components["schemas"]["Resources"];
            /** @description variables of the template to leave out */
            unsetEnv?: string[];
        };
        IssuedKey: {
            apiKey: string;
            id: string;
        };
        IssuedPoolToken: {
            joinCommand?: string;
            poolToken: components["schemas"]["PoolToken"];
            token: string;
        };
        Job: {
            case: components["schemas"]["Case"];
            env?: {
                [key: string]: string;
            };
            harness: components["schemas"]["HarnessSpec"];
            runId: string;
            submittedBy?: string;
            workspace: string;
        };
        JoinRequest: {
            /** @description a name to show for the machine */
            label?: string;
            /** @description its operating system */
            os?: string;
        };
        Joined: {
            runner: components["schemas"]["Runner"];
            token: string;
        };
        Key: {
            createdAt: components["schemas"]["Time"];
            createdBy?: string;
            id: string;
            label?: string;
            prefix: string;
            role: string;
            scopes?: string[];
            subject: string;
        };
        KeyRequest: {
            /** @description what the key is for */
            label?: string;
            /**
             * @description none above that of the key that asks; without it the same, and for another member
             * @enum {string}
             */
            role?: "viewer" | "member" | "admin";
            /** @description none above those of the key that asks, and without them the same as its own */
            scopes?: ("read" | "write" | "admin")[];
            /** @description who it acts as; without it whoever asks. Another's is made by an admin */
            subject?: string;
        };
        Limit: {
            /** Format: double */
            configured: number;
            /** Format: double */
            measured: number;
            name: string;
            unit: string;
        };
        LiveTrajectory: {
            events: components["schemas"]["TraceEvent"][];
            found: boolean;
            status: string;
        };
        LogMatch: {
            column: number;
            /** Format: int64 */
            offset: number;
            text: string;
        };
        LogMatches: {
            /** Format: int64 */
            bytes: number;
            done: boolean;
            matches: components["schemas"]["LogMatch"][];
            /** Format: int64 */
            next: number;
        };
        LogView: {
            /** Format: int64 */
            attempt?: number;
            /** Format: int64 */
            bytes?: number;
            found: boolean;
            /** Format: int64 */
            next: number;
            /** Format: int64 */
            offset: number;
            status: string;
            text: string;
            truncated?: boolean;
        };
        Me: {
            roles: string[];
            runnerId?: string;
            scopes?: string[];
            subject: string;
            via: string;
            workspace: string;
        };
        Membership: {
            id: string;
            role: string;
        };
        MetricSpec: {
            /**
             * @description how much it counts in the verdict
             * @enum {string}
             */
            authority?: "ground_truth" | "objective" | "judge" | "observational";
            /**
             * @description what is better
             * @enum {string}
             */
            direction?: "higher_is_better" | "lower_is_better" | "neutral";
            /** @description the metric */
            id: string;
        };
        Milestone: {
            /** @description how it shows */
            description: string;
            /** @description its name */
            id: string;
        };
        ModelReference: {
            /** @description a registered model */
            ref: string;
            /** @description its version */
            version?: string;
        };
        Network: {
            /** @description with the mode allowlist: host names */
            allowedHosts?: string[];
            /**
             * @description public: any; none: none; allowlist: allowedHosts only
             * @enum {string}
             */
            mode: "public" | "none" | "allowlist";
        };
        Nonce: {
            expiresInSec: number;
            nonce: string;
        };
        OmittedFile: {
            /** Format: int64 */
            bytes?: number;
            path: string;
            reason: string;
            sha256?: string;
        };
        OpenRuns: {
            /** Format: int64 */
            queued: number;
            /** Format: int64 */
            running: number;
            /** Format: int64 */
            suspended: number;
        };
        Origin: {
            /** @description who did it: set by the coordinator from the credential */
            actor?: string;
            /**
             * @description what kind of thing it was
             * @enum {string}
             */
            cause?: "member" | "schedule" | "event" | "run" | "ci" | "api";
            /** @description the run that submitted this one */
            causedByRunId?: string;
            /** @description the event that came */
            eventId?: string;
            /** @description the kind of that event */
            eventKind?: string;
            /** @description what did it for them */
            executor?: string;
            /** @description the schedule that was due */
            scheduleId?: string;
        };
        Outcomes: {
            at?: components["schemas"]["Time"];
            /** Format: int64 */
            cancelled: number;
            /** Format: int64 */
            failed: number;
            failures: {
                [key: string]: number;
            };
            /** Format: int64 */
            passed: number;
            /** Format: int64 */
            runs: number;
            tokens?: number;
            /** Format: int64 */
            tokensRuns: number;
            /** Format: int64 */
            ungraded: number;
            usd?: number;
            /** Format: int64 */
            usdRuns: number;
        };
        PairCode: {
            expiresInSec: number;
            id: string;
            link?: string;
            number: string;
            runner?: components["schemas"]["Runner"];
            status: string;
        };
        PairRequest: {
            /** @description what it offers, such as git and docker; it reports the same itself when it connects */
            capabilities?: string[];
            /** @description a name to show for the machine */
            label: string;
            /** @description its operating system */
            os?: string;
        };
        Paired: {
            attachCommand?: string;
            runner: components["schemas"]["Runner"];
            token: string;
        };
        PairedDevice: {
            account?: components["schemas"]["Account"];
            runner?: components["schemas"]["Runner"];
            status: string;
        };
        Pairing: {
            arch?: string;
            capabilities: string[];
            expiresInSec: number;
            from: string;
            headless?: boolean;
            hostname?: string;
            id: string;
            label: string;
            number: string;
            os?: string;
            requestedAt: components["schemas"]["Time"];
            runner?: string;
            status: string;
            version?: string;
        };
        PairingApproval: {
            callback?: string;
            link?: string;
            pairing: components["schemas"]["Pairing"];
        };
        PairingCallback: {
            /** @description the port on 127.0.0.1 of the machine */
            port: number;
            /** @description comes back with the grant: 16 to 128 characters of base64url */
            state: string;
        };
        PairingLookup: {
            /** @description the eight letters that the machine shows; case, spaces and hyphens do not matter */
            userCode: string;
        };
        PairingRedeem: {
            /** @description the grant (pgc_...) that came to the callback; none without a callback */
            grant?: string;
            /** @description a signature with the device key: Ed25519 in base64url over the line everdict pairing v1, the line of the request's id, and the grant */
            proof: string;
            /** @description what the challenge was made of */
            verifier: string;
        };
        PairingRequest: {
            /** @description its processor */
            arch?: string;
            /** @description where the browser brings the grant; none: the machine asks until it is approved */
            callback?: components["schemas"]["PairingCallback"];
            /** @description what it offers, such as git and docker */
            capabilities?: string[];
            /** @description the SHA-256 of its verifier in base64url without padding */
            challenge: string;
            /** @description a pair code (prc_...), from a link of the dashboard */
            code?: string;
            /** @description its name in its network */
            hostname?: string;
            /** @description a name to show for the machine */
            label: string;
            /** @description with code: the two digits that the dashboard shows. A wrong number spoils the code */
            number?: string;
            /** @description its operating system */
            os?: string;
            /** @description the public half of its device key: 32 bytes of Ed25519 in base64url without padding */
            publicKey: string;
            /** @description the version of the program that asks */
            version?: string;
        };
        PairingStarted: {
            account?: components["schemas"]["Account"];
            enterUrl?: string;
            expiresInSec: number;
            id: string;
            intervalSec?: number;
            number: string;
            url?: string;
            userCode?: string;
        };
        Payload: {
            /** Format: int64 */
            attempt: number;
            job: components["schemas"]["Job"];
            leaseToken: string;
            runnerToken: string;
            version: number;
        };
        PayloadDelivery: {
            /** @description the result: the JSON after __EVERDICT_RESULT__ in what job-runner printed */
            result: unknown;
        };
        PayloadRequest: {
            /** @description how long the payload may be out, in seconds; default 86400 (a day), at most 604800. A run whose result is not there by then has failed */
            expiresInSec?: number;
        };
        PayloadResult: {
            /** Format: int64 */
            attempt: number;
            late?: boolean;
            runId: string;
        };
        Pinned: {
            base: string;
            id: string;
            pins: {
                [key: string]: string;
            };
            unchanged: boolean;
            version: string;
            workspace: string;
        };
        PinsRequest: {
            /** @description take an image without a digest, which may change under its name */
            allowTags?: boolean;
            /** @description the version to start from; default latest */
            base?: string;
            /** @description values for the slots: image, model */
            pins: {
                [key: string]: string;
            };
            /** @description the version to make */
            version: string;
        };
        Placement: {
            /** @description kept in the record */
            isolation?: string;
            /**
             * @description the system that the machine has to have
             * @enum {string}
             */
            os?: "linux" | "windows" | "macos";
            /** @description as runtime of the run, which comes first */
            target?: string;
        };
        PlacementEvent: {
            at?: string;
            message: string;
            type?: string;
        };
        PlacementView: {
            found: boolean;
            placement: components["schemas"]["CasePlacement"];
            status: string;
        };
        Pool: {
            /** Format: int64 */
            cpu?: number;
            cpuBudget?: number;
            kind: string;
            launched?: boolean;
            maxConcurrent: number;
            memoryBudgetMb?: number;
            /** Format: int64 */
            memoryMb?: number;
            online: number;
            queued: number;
            runners: components["schemas"]["Runner"][];
            running: number;
            runtime: string;
            slots: number;
            version: string;
        };
        PoolToken: {
            createdAt: components["schemas"]["Time"];
            createdBy?: string;
            expiresAt: components["schemas"]["Time"];
            id: string;
            label?: string;
            prefix: string;
            runtime: string;
        };
        PoolTokenRequest: {
            /** @description how long it is good, up to 366 days; default 30 days */
            expiresInSec?: number;
            /** @description what the token is for */
            label?: string;
            /** @description the registered runtime whose pool machines join with the token */
            runtime: string;
        };
        PoolUse: {
            /** Format: int64 */
            cpu?: number;
            cpuBudget?: number;
            kind: string;
            launched?: boolean;
            maxConcurrent: number;
            memoryBudgetMb?: number;
            /** Format: int64 */
            memoryMb?: number;
            online: number;
            queued: number;
            running: number;
            runtime: string;
            slots: number;
            version: string;
        };
        Probe: {
            detail: string;
            kind: string;
            reachable: boolean;
            reason?: string;
        };
        Problem: {
            code: string;
            data?: {
                [key: string]: unknown;
            };
            hint?: string;
            message: string;
        };
        Provenance: {
            /** Format: int64 */
            attempt?: number;
            attestation?: string;
            by?: string;
            hostname?: string;
            ranOn: string;
            runner?: string;
            runnerLabel?: string;
        };
        Registered: {
            id: string;
            private?: boolean;
            version: string;
            workspace: string;
        };
        RepoSource: {
            /** @description content by relative path; {} is an empty repository. Exactly one of files, git and path is given */
            files?: {
                [key: string]: string;
            };
            /** @description a URL to clone */
            git?: string;
            /** @description a directory on the runner's machine, which is copied */
            path?: string;
            /** @description with git: a branch, a tag or a full commit id */
            ref?: string;
        };
        Resources: {
            /** @description in thousandths of a core */
            cpu?: number;
            /** @description how many GPUs */
            gpu?: number;
            /** @description in MiB */
            memoryMb?: number;
        };
        Run: {
            /** Format: int64 */
            attempt?: number;
            caseId: string;
            caseSpec?: components["schemas"]["Case"];
            class: string;
            createdAt: components["schemas"]["Time"];
            createdBy?: string;
            error?: components["schemas"]["RunError"];
            failure?: components["schemas"]["Failure"];
            finishedAt?: components["schemas"]["Time"];
            harness: components["schemas"]["HarnessRef"];
            id: string;
            kind: string;
            origin?: components["schemas"]["Origin"];
            placement?: components["schemas"]["RunPlace"];
            provenance?: components["schemas"]["Provenance"];
            resolvedHarness?: components["schemas"]["HarnessRef"];
            result?: components["schemas"]["CaseResult"];
            runtime?: string;
            scores?: components["schemas"]["Score"][];
            startedAt?: components["schemas"]["Time"];
            status: string;
            suspended?: components["schemas"]["Suspension"];
            tenant: string;
            trigger?: string;
            updatedAt: components["schemas"]["Time"];
            usage?: components["schemas"]["Usage"];
            verdict?: boolean;
            verdictBasis?: components["schemas"]["VerdictBasis"];
        };
        RunError: {
            code: string;
            message: string;
        };
        RunEvent: {
            at: components["schemas"]["Time"];
            /** Format: int64 */
            attempt?: number;
            kind: string;
            message?: string;
            runner?: string;
            /** Format: int64 */
            seq: number;
        };
        RunPlace: {
            blockedReason?: string;
            pool?: string;
            queueDeadline?: components["schemas"]["Time"];
            runtime?: components["schemas"]["RuntimeRef"];
            target?: string;
            where: string;
            why?: string;
        };
        RunRequest: {
            /** @description the task, where it is done and how it is judged */
            case: components["schemas"]["Case"];
            /** @description the agent that works on the case */
            harness: components["schemas"]["HarnessRef"];
            /** @description not supported: gets a warning, because no grader asks a model */
            judge?: unknown;
            /** @description not supported: true gets a warning, and usage is what the harness's own trace says */
            meterUsage?: boolean;
            /** @description what caused the run */
            origin?: components["schemas"]["Origin"];
            /**
             * @description the scheduling class; default interactive
             * @enum {string}
             */
            priority?: "interactive" | "batch";
            /** @description where to run: self, self:ws, self:<runner id>, the id of a runtime, several of them with commas (the one with the fewest runs gets it), or auto (default), which is any pool of the workspace that can run it */
            runtime?: string;
            /** @description not supported: gets a warning, because there are no teams */
            teamId?: string;
            /** @description a label of one's own to filter runs by */
            trigger?: string;
            /** @description not supported: a request with one is refused */
            webhookUrl?: string;
        };
        Runner: {
            arch?: string;
            busy?: number;
            capabilities: string[];
            capabilityEvidence?: {
                [key: string]: string;
            };
            device?: boolean;
            hostname?: string;
            id: string;
            job?: string;
            label: string;
            lastSeenAt?: components["schemas"]["Time"];
            online: boolean;
            os?: string;
            owner?: string;
            pairedAt: components["schemas"]["Time"];
            paused?: string;
            protocol?: number;
            runtime?: string;
            scope?: string;
            slots?: number;
            status?: components["schemas"]["RunnerStatus"];
            target?: string;
            unit?: string;
            updateRequired?: boolean;
            version?: string;
        };
        RunnerCounts: {
            busy: number;
            degraded: number;
            online: number;
            slots: number;
            total: number;
            updateRequired: number;
        };
        RunnerStatus: {
            at: components["schemas"]["Time"];
            level: string;
            text: string;
        };
        Runners: {
            runners: components["schemas"]["Runner"][];
        };
        RuntimeEntry: {
            capabilities?: string[];
            createdBy?: string;
            id: string;
            kind: string;
            latestVersion: string;
            owner: string;
            updatedAt: components["schemas"]["Time"];
            versionTags?: {
                [key: string]: string[];
            };
            versions: string[];
        };
        RuntimeRef: {
            /** @description a registered runtime */
            id: string;
            /** @description a version, or latest (default) */
            version?: string;
        };
        RuntimeSpec: {
            /** @description of nomad: the address of its API */
            addr?: string;
            /** @description of nomad and k8s: the name of the secret with the token for the cluster's API */
            authSecret?: string;
            /** @description of nomad and k8s: the image of browsers for services; kept with the spec, not used: no services are started */
            browserImage?: string;
            /** @description what its runners offer; what follows from other fields (docker, sandbox, topology, gpu) is added */
            capabilities?: ("git" | "docker" | "browser" | "computer-use" | "topology" | "os-windows" | "os-macos" | "gpu" | "sandbox" | "codex-login" | "claude-login")[];
            /** @description of nomad with raw_exec, in place of image: the path of job-runner on the clients */
            command?: string;
            /** @description of nomad: which clients may run it */
            constraints?: components["schemas"]["Constraint"][];
            /** @description of k8s: the context of the kubeconfig */
            context?: string;
            /** @description thousandths of a core of declared CPU at a time in the whole pool; none: no limit */
            cpuBudget?: number;
            /** @description of nomad: what a core is in MHz; without it, declared parts of cores are rounded up to whole ones */
            cpuMhzPerCore?: number;
            /** @description of nomad: where to run; default: all */
            datacenters?: string[];
            /** @description for people */
            description?: string;
            /**
             * @description of nomad: how the runner is run, in a container (default) or as a process of the client
             * @enum {string}
             */
            driver?: "docker" | "raw_exec";
            /** @description of nomad and k8s: GPUs of a runner */
            gpu?: number;
            /** @description of nomad and k8s: the address of the host as services would see it; kept with the spec, not used: no services are started */
            hostGatewayAddr?: string;
            /** @description its name, which a run gives as its runtime */
            id: string;
            /** @description how long a runner waits for its next run; 0 (default): it takes one run; refused where the coordinator launches none */
            idleSeconds?: number;
            /** @description of nomad and k8s: the image of the runner that the cluster starts */
            image?: string;
            /**
             * @description local: no cluster, and runners that the coordinator launches on its own machine where it may; nomad and k8s: a cluster
             * @enum {string}
             */
            kind: "local" | "nomad" | "k8s";
            /** @description of k8s: the name of the secret with a kubeconfig; it comes before server and context */
            kubeconfigSecret?: string;
            /** @description runs at a time in the whole pool; default 20 */
            maxConcurrent?: number;
            /** @description MiB of declared memory at a time in the whole pool; none: no limit */
            memoryBudgetMb?: number;
            /** @description of nomad and k8s: the namespace there */
            namespace?: string;
            /** @description of k8s: labels that a node must have */
            nodeSelector?: {
                [key: string]: string;
            };
            /** @description a launched runner is given its run as a file, begins without reaching the coordinator, and its result is read from its output if it never does; refused where the coordinator launches none */
            payload?: boolean;
            /** @description of nomad and k8s: start what services depend on; kept with the spec, not used: no services are started */
            provisionDependencies?: boolean;
            /** @description of nomad: the container runtime, such as runsc */
            runtime?: string;
            /** @description of k8s: the runtime class of the Pods, such as gvisor */
            runtimeClass?: string;
            /** @description of k8s: the address of its API */
            server?: string;
            /** @description labels of one's own */
            tags?: string[];
            /** @description of k8s: taints that are no hindrance */
            tolerations?: components["schemas"]["Toleration"][];
            /** @description of nomad and k8s: where the traces of services beside a run would be read; kept with the spec and offered as the capability topology, not used: no services are started */
            traceSource?: components["schemas"]["TraceSource"];
            /** @description a version never changes once it is registered; not latest */
            version: string;
            /** @description runners to keep ready; refused where the coordinator launches none */
            warm?: number;
            /** @description what runs must declare, exactly, to go to a runner that is kept ready; absent: nothing */
            warmSize?: components["schemas"]["Resources"];
        };
        RuntimeValidation: {
            errors?: string[];
            existingVersions: string[];
            id?: string;
            kind?: string;
            missingSecrets?: string[];
            ok: boolean;
            version?: string;
            versionExists: boolean;
            warnings?: string[];
        };
        Score: {
            attempts?: number;
            authority?: string;
            detail?: string;
            graderId: string;
            label?: string;
            metric: string;
            pass?: boolean;
            reason?: string;
            retryable?: boolean;
            status: string;
            value?: number;
        };
        Secret: {
            kind: string;
            name: string;
            scope: string;
            updatedAt: components["schemas"]["Time"];
        };
        SecretRef: {
            /**
             * @description whose it is; default: the workspace's, else the submitter's own
             * @enum {string}
             */
            scope?: "workspace" | "user";
            /** @description the secret's name */
            secretRef: string;
        };
        SecretRequest: {
            /**
             * @description whose it is; default workspace
             * @enum {string}
             */
            scope?: "workspace" | "user";
            /** @description the value: text of at most 64 KiB. It is kept sealed and never shown again */
            value: string;
        };
        SecretUsage: {
            kind: string;
            name: string;
            refs: components["schemas"]["SecretUse"][];
            scope: string;
            updatedAt: components["schemas"]["Time"];
        };
        SecretUse: {
            detail?: string;
            field: string;
            kind: string;
            label: string;
            resourceId?: string;
            version?: string;
        };
        Session: {
            authRequired: boolean;
            expiresAt?: components["schemas"]["Time"];
            idleExpiresAt?: components["schemas"]["Time"];
            principal?: components["schemas"]["Me"];
            reason?: string;
            signedIn: boolean;
            version: string;
            workspaces: components["schemas"]["Membership"][];
        };
        SessionRequest: {
            /** @description the API key (ak_...) that the session acts for */
            apiKey: string;
        };
        Snapshot: {
            baseline?: string;
            changedFiles?: string[];
            diff?: string;
            /** Format: int64 */
            diffBytes?: number;
            diffTruncated?: boolean;
            headSha?: string;
            kind: string;
            omitted?: components["schemas"]["OmittedFile"][];
            output?: string;
            redacted?: boolean;
        };
        SpecChange: {
            base?: unknown;
            candidate?: unknown;
            op: string;
            path: string;
        };
        SpecDiff: {
            base: string;
            candidate: string;
            changes: components["schemas"]["SpecChange"][];
            id: string;
        };
        SubmittedRun: {
            /** Format: int64 */
            attempt?: number;
            caseId: string;
            caseSpec?: components["schemas"]["Case"];
            class: string;
            createdAt: components["schemas"]["Time"];
            createdBy?: string;
            error?: components["schemas"]["RunError"];
            failure?: components["schemas"]["Failure"];
            finishedAt?: components["schemas"]["Time"];
            harness: components["schemas"]["HarnessRef"];
            id: string;
            kind: string;
            origin?: components["schemas"]["Origin"];
            placement?: components["schemas"]["RunPlace"];
            provenance?: components["schemas"]["Provenance"];
            resolvedHarness?: components["schemas"]["HarnessRef"];
            result?: components["schemas"]["CaseResult"];
            runId: string;
            runtime?: string;
            scores?: components["schemas"]["Score"][];
            startedAt?: components["schemas"]["Time"];
            status: string;
            suspended?: components["schemas"]["Suspension"];
            tenant: string;
            trigger?: string;
            updatedAt: components["schemas"]["Time"];
            usage?: components["schemas"]["Usage"];
            verdict?: boolean;
            verdictBasis?: components["schemas"]["VerdictBasis"];
            warnings?: string[];
        };
        Summary: {
            at: components["schemas"]["Time"];
            day: components["schemas"]["Outcomes"];
            hours: components["schemas"]["Outcomes"][];
            pools: components["schemas"]["PoolUse"][];
            runners: components["schemas"]["RunnerCounts"];
            runs: components["schemas"]["OpenRuns"];
            waiting: components["schemas"]["WaitGroup"][];
        };
        Suspension: {
            id?: string;
            kind: string;
            question?: string;
            since: components["schemas"]["Time"];
        };
        Tagged: {
            id: string;
            tags: string[];
            version: string;
            workspace: string;
        };
        Tags: {
            /** @description all of them: what is not here is removed */
            tags: string[];
        };
        TemplateEntry: {
            category?: string;
            id: string;
            kind?: string;
            latestVersion?: string;
            owner: string;
            versions: string[];
        };
        TenantKey: {
            apiKey: string;
            id: string;
            workspace: string;
        };
        TenantKeyRequest: {
            /** @description it exists by having a key */
            workspace: string;
        };
        /** @description an instant: RFC 3339, UTC, milliseconds */
        Time: string;
        Timing: {
            /** Format: double */
            frozenMs?: number;
            /** Format: double */
            gradeMs: number;
            /** Format: double */
            installMs: number;
            /** Format: double */
            prepareMs: number;
            /** Format: double */
            runMs: number;
            /** Format: double */
            snapshotMs: number;
        };
        Toleration: {
            /**
             * @description none: every effect
             * @enum {string}
             */
            effect?: "NoSchedule" | "PreferNoSchedule" | "NoExecute";
            /** @description the taint's key */
            key: string;
            /**
             * @description default Equal
             * @enum {string}
             */
            operator?: "Exists" | "Equal";
            /** @description with Equal: the taint's value */
            value?: string;
        };
        TraceEvent: {
            action?: string;
            args?: unknown;
            at?: string;
            attributes?: unknown;
            cost?: components["schemas"]["Cost"];
            detail?: unknown;
            /** Format: double */
            durationMs?: number;
            event?: string;
            id?: string;
            kind: string;
            latencyMs?: number;
            mediaType?: string;
            message?: string;
            model?: string;
            name?: string;
            node?: string;
            ok?: boolean;
            output?: string;
            parentId?: string;
            ref?: string;
            role?: string;
            scope?: string;
            service?: string;
            spanId?: string;
            stream?: string;
            /** Format: double */
            t: number;
            text?: string;
            truncated?: boolean;
            unit?: string;
        };
        TraceSource: {
            /** @description where artifacts that a trace names lie */
            artifactBaseUrl?: string;
            /** @description the name of the secret with its token */
            authSecret?: string;
            /**
             * @description how a run's trace is found; default id
             * @enum {string}
             */
            correlate?: "id" | "tag";
            /** @description with correlate tag: which */
            correlateTag?: string;
            /** @description its address */
            endpoint: string;
            /**
             * @description what keeps them
             * @enum {string}
             */
            kind: "otel" | "mlflow" | "langfuse" | "langsmith" | "phoenix";
            /** @description which attributes mean what */
            mapping?: unknown;
            /** @description the project there */
            project?: string;
            /** @description the service's name there */
            service?: string;
        };
        Trajectory: {
            events: components["schemas"]["TraceEvent"][];
            meta: components["schemas"]["TrajectoryMeta"];
            segments: components["schemas"]["TrajectorySegment"][];
        };
        TrajectoryMeta: {
            /** Format: int64 */
            eventCount: number;
            sealedAt: components["schemas"]["Time"];
            source: string;
        };
        TrajectorySegment: {
            emitter: string;
            /** Format: int64 */
            eventCount: number;
            format: string;
            sealedAt: components["schemas"]["Time"];
            source: string;
        };
        Usage: {
            cacheReadTokens?: number;
            cacheWriteTokens?: number;
            calls: null | number;
            completionTokens: null | number;
            partial?: boolean;
            promptTokens: null | number;
            reasoningTokens?: number;
            tokensSource?: string;
            totalTokens: null | number;
            usd: null | number;
            usdSource?: string;
        };
        Validation: {
            errors?: string[];
            existingVersions: string[];
            id?: string;
            kind?: string;
            ok: boolean;
            version?: string;
            versionExists: boolean;
        };
        VerdictBasis: {
            aggregation: string;
            authority: string;
            deciders: components["schemas"]["Decider"][];
        };
        Versions: {
            id: string;
            versionTags?: {
                [key: string]: string[];
            };
            versions: string[];
        };
        WaitGroup: {
            count: number;
            pool: string;
            reason: string;
            runId?: string;
            since?: components["schemas"]["Time"];
            why: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
