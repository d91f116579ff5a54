from switchyard_py.simulator.journal import Journal


async def test_details_are_forgotten_and_counts_are_not() -> None:
    journal = Journal()
    for _ in range(1005):
        journal.start("r", "/", streamed=False, prompt_tokens=1).end("finished")
    report = journal.report()
    assert (report["started"], report["finished"], len(report["requests"])) == (1005, 1005, 1000)
    assert report["requests"][-1]["call"] == 1005


async def test_an_open_call_is_never_forgotten() -> None:
    journal = Journal()
    entry = journal.start("open", "/", streamed=False, prompt_tokens=1)
    for _ in range(1005):
        journal.start("r", "/", streamed=False, prompt_tokens=1).end("finished")
    assert journal.open_entries() == [entry]


async def test_the_first_end_counts_unless_a_fault_strikes() -> None:
    entry = Journal().start("r", "/", streamed=True, prompt_tokens=1)
    entry.end("finished")
    entry.end("aborted")
    assert entry.report()["state"] == "finished"
    entry.end("failed")
    assert entry.report()["state"] == "failed"
