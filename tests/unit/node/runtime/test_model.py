"""The argv of a container, from its spec and its image."""

from __future__ import annotations

from shoal.node.runtime.model import ContainerSpec, Image, argv_of


def test_a_command_replaces_the_entrypoint_and_arguments_of_the_image() -> None:
    image = Image(id="i", names=(), entrypoint=("entry",), command=("default",))

    def argv(command: tuple[str, ...] = (), args: tuple[str, ...] = ()) -> tuple[str, ...]:
        return argv_of(ContainerSpec(name="c", attempt=0, image=image, image_reference="i", command=command, args=args))

    assert argv() == ("entry", "default")
    assert argv(args=("own",)) == ("entry", "own")
    assert argv(command=("cmd",)) == ("cmd",)
    assert argv(command=("cmd",), args=("own",)) == ("cmd", "own")
